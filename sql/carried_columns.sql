-- What of a job goes with it into the ledger when it ends, and comes back when it is requeued: all that its producer
-- said, but for the payload and its encoding, which a purge empties, and run_at, which is over.
--
-- In statements and migrations /*carried*/ stands for these names, and /*carried j*/ for the same with j. before each.
kind
priority
idempotency_key
attempts_max
lease_ttl_ms
run_max_ms
backoff_base_ms
backoff_max_ms
delivery
tags
traceparent
created_at
