-- Adds the jobs whose key keys_take could take, and says of every one which job its key belongs to and
-- with which kind and payload that job was submitted.
--
-- $1 to $17 as in jobs_enqueue  $18 keys  $19 fingerprints
WITH mine AS MATERIALIZED (
    SELECT new.*, k.job_id, k.fingerprint
      FROM unnest($2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::faultline.encoding[], $7::smallint[],
                  $8::timestamptz[], $9::bigint[], $10::integer[], $11::integer[], $12::bigint[], $13::integer[],
                  $14::integer[], $15::faultline.delivery[], $16::text[], $17::text[], $18::text[],
                  $19::bytea[])
           AS new(id, queue, kind, payload, encoding, priority, run_at, delay_ms, attempts_max, lease_ttl_ms,
                  run_max_ms, backoff_base_ms, backoff_max_ms, delivery, tags, traceparent, key, print)
     CROSS JOIN LATERAL (
           SELECT i.job_id, i.fingerprint FROM faultline.idempotency_keys i
            WHERE i.bucket = $1::smallint AND i.queue = new.queue AND i.key = new.key LIMIT 1) AS k
), added AS (
    INSERT INTO faultline.jobs (
           bucket, id, queue, kind, payload, encoding, priority, run_at, attempts_max, lease_ttl_ms, run_max_ms,
           backoff_base_ms, backoff_max_ms, delivery, tags, traceparent, idempotency_key)
    SELECT $1::smallint, m.id, m.queue, m.kind, m.payload,
           m.encoding, m.priority,
           coalesce(m.run_at, faultline.clock() + coalesce(m.delay_ms, 0) * interval '1 millisecond'),
           m.attempts_max, m.lease_ttl_ms, m.run_max_ms, m.backoff_base_ms, m.backoff_max_ms, m.delivery,
           CASE WHEN m.tags IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(m.tags::jsonb)) END,
           m.traceparent, m.key
      FROM mine m
     WHERE m.job_id = m.id
    ON CONFLICT (bucket, id) DO NOTHING
    RETURNING id, queue
), tallied AS (
    INSERT INTO faultline.tallies (bucket, queue, available)
    SELECT $1::smallint, a.queue, count(*) FROM added a GROUP BY a.queue
)
SELECT m.id, m.job_id, m.fingerprint FROM mine m
