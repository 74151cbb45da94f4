-- Brings finished jobs back from the ledger, where their end stays. If two do it at once, the second waits
-- for the first and then adds nothing, or fails on the ledger's primary key; the store looks again. A job that was
-- purged has no payload any more, and does not come back.
--
-- $1 bucket  $2 jobs  $3 who
WITH last AS MATERIALIZED (
    SELECT l.*
      FROM unnest($2::uuid[]) AS mine(id)
     CROSS JOIN LATERAL (
           SELECT * FROM faultline.ledger f
            WHERE f.bucket = $1::smallint AND f.job_id = mine.id
            ORDER BY f.token DESC LIMIT 1) AS l
     WHERE l.state IN ('succeeded', 'cancelled') AND l.outcome <> 'purged'
), added AS (
    INSERT INTO faultline.jobs (
           bucket, id, token, requeues, queue, /*carried*/, encoding, payload)
    SELECT $1::smallint, l.job_id, l.token + 1, l.requeues + 1, l.queue, /*carried l*/, l.encoding, l.payload
      FROM last l WHERE l.token < 9223372036854775806
    ON CONFLICT (bucket, id) DO NOTHING
    RETURNING id, token, requeues, queue, idempotency_key
), booked AS (
    INSERT INTO faultline.ledger (bucket, job_id, token, attempt, outcome, state, requeues, queue, worker)
    SELECT $1::smallint, a.id, a.token, 0, 'requeued', 'available', a.requeues, a.queue, $3::text FROM added a
), keyed AS (
    INSERT INTO faultline.idempotency_keys AS old (bucket, queue, key, job_id, fingerprint, expires_at)
    SELECT $1::smallint, k.queue, k.key, k.job_id, k.fingerprint,
           NULL::timestamptz
      FROM added a
     CROSS JOIN LATERAL (
           SELECT i.queue, i.key, i.job_id, i.fingerprint FROM faultline.idempotency_keys i
            WHERE i.bucket = $1::smallint AND i.queue = a.queue AND i.key = a.idempotency_key
              AND i.job_id = a.id
            LIMIT 1) AS k
     WHERE a.idempotency_key IS NOT NULL
    ON CONFLICT (bucket, queue, key) DO UPDATE SET expires_at = EXCLUDED.expires_at
     WHERE old.bucket = $1::smallint
), tallied AS (
    INSERT INTO faultline.tallies (bucket, queue, available, succeeded, cancelled)
    SELECT $1::smallint, a.queue, count(*), -count(*) FILTER (WHERE l.state = 'succeeded'),
           -count(*) FILTER (WHERE l.state = 'cancelled')
      FROM added a JOIN last l ON l.job_id = a.id GROUP BY a.queue
)
SELECT l.job_id, l.token >= 9223372036854775806 AS exhausted, a.id IS NOT NULL AS requeued, l.queue
  FROM last l LEFT JOIN added a ON a.id = l.job_id
