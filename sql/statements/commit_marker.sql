-- Makes a transaction one that writes, so that its commit waits for the synchronous standbys, and with it for every commit
-- before it. It leaves nothing but a record in the log that nobody reads.
SELECT pg_logical_emit_message(true, 'faultline', '')
