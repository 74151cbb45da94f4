-- Names the open transaction, so that a later statement can tell whether it is still the same one. It gets its number
-- now; it will write in any case.
SELECT pg_current_xact_id()::text
