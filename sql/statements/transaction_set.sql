-- Settings for the rest of the transaction. In front of a statement of the store's on a connection whose settings are
-- otherwise the user's.
--
-- $1 names  $2 values
SELECT set_config(s.name, s.value, true) FROM unnest($1::text[], $2::text[]) AS s(name, value)
