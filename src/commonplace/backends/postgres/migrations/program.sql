-- Made again with every step. Each transaction of a program asks first whether the program still knows the schema. To
-- look holds the table `migration` until the transaction ends. A step locks that table before all others: it waits for
-- every transaction that is at work, those that come wait for it while they hold nothing else, and are then told here.
-- VOLATILE, so that the look sees what was committed while it waited. It runs as the owner and names the schema, because
-- the app role may not read the table.
CREATE OR REPLACE FUNCTION check_program(known bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
DECLARE
    present integer;
BEGIN
    SELECT max(number) INTO present FROM {schema}.migration;
    IF present > known THEN
        RAISE EXCEPTION USING ERRCODE = 'CP001', MESSAGE =
            format('a newer commonplace has upgraded it to schema %s, and this program knows up to %s', present, known);
    END IF;
END $$;

-- What searches of schema 1 call, and step 2 took away: a server of that time is told what to do.
CREATE OR REPLACE FUNCTION postings(wanted text[]) RETURNS TABLE (place bigint, level integer, numbers bigint[])
LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RAISE EXCEPTION 'a newer commonplace has upgraded the database; restart this program with the newer version';
END $$;
