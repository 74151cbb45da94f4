-- Adds jobs that carry no idempotency key. Ids are the producer's, so that the same submission sent
-- twice is one job; a row that is there already is left alone and does not come back.
--
-- $1 bucket  $2 ids  $3 queues  $4 kinds  $5 payloads  $6 encodings  $7 priorities
-- $8 run_at, NULL: after the delay  $9 delay in ms  $10 attempts_max  $11 lease_ttl_ms  $12 run_max_ms
-- $13 backoff_base_ms  $14 backoff_max_ms  $15 delivery  $16 tags, as JSON arrays
-- $17 traceparents, NULL: there are none
WITH added AS (
    INSERT INTO faultline.jobs (
           bucket, id, queue, kind, payload, encoding, priority, run_at, attempts_max, lease_ttl_ms, run_max_ms,
           backoff_base_ms, backoff_max_ms, delivery, tags, traceparent)
    SELECT $1::smallint, new.id, new.queue, new.kind, new.payload,
           new.encoding, new.priority,
           coalesce(new.run_at, faultline.clock() + coalesce(new.delay_ms, 0) * interval '1 millisecond'),
           new.attempts_max, new.lease_ttl_ms, new.run_max_ms, new.backoff_base_ms, new.backoff_max_ms,
           new.delivery,
           CASE WHEN new.tags IS NOT NULL
                THEN ARRAY(SELECT jsonb_array_elements_text(new.tags::jsonb)) END,
           new.traceparent
      FROM unnest($2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::faultline.encoding[], $7::smallint[],
                  $8::timestamptz[], $9::bigint[], $10::integer[], $11::integer[], $12::bigint[], $13::integer[],
                  $14::integer[], $15::faultline.delivery[], $16::text[], $17::text[])
           AS new(id, queue, kind, payload, encoding, priority, run_at, delay_ms, attempts_max, lease_ttl_ms,
                  run_max_ms, backoff_base_ms, backoff_max_ms, delivery, tags, traceparent)
    ON CONFLICT (bucket, id) DO NOTHING
    RETURNING id, queue
), tallied AS (
    INSERT INTO faultline.tallies (bucket, queue, available)
    SELECT $1::smallint, a.queue, count(*) FROM added a GROUP BY a.queue
)
SELECT a.id FROM added a
