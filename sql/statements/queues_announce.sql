-- Says that a queue has jobs that are due: a hint that wakes idle workers, never the guarantee, which is that they
-- poll. NOTIFY takes a lock that all transactions which use it hold until they have committed, so the store
-- sends few of these, and as a statement of its own.
--
-- $1 channel  $2 queue
SELECT pg_notify($1::text, $2::text)
