"""The page of `commonplace serve`, for people: see what is remembered, correct it, and take it back."""
