-- Searches name the part that they read: a plan over all parts costs each of them, even where it leaves all but one out.
-- Every part has its own `postings_pN` (part.sql) and row-level security.
DROP FUNCTION postings(text[]);
