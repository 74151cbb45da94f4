-- Puts dead and held jobs back, as a recorded act with a token of its own: the token goes on, it never
-- restarts; the attempts begin anew. Jobs that are available or running come back with `live` and are
-- left alone.
--
-- $1 bucket  $2 jobs  $3 who
WITH target AS MATERIALIZED (
    SELECT j.id, j.state, j.token, j.requeues, j.queue
      FROM faultline.jobs j
     WHERE j.bucket = $1::smallint AND j.id = ANY ($2::uuid[]) AND j.queue <> ''
     ORDER BY j.id
       FOR UPDATE
), returned AS (
    -- One token is minted here, and the next claim needs another. A dead job has no lease to take away; but one that
    -- was buried while we waited is running in this statement's snapshot, and PostgreSQL checks the constraint on
    -- that version too, before it goes on to the newest.
    UPDATE faultline.jobs j
       SET state = 'available', token = j.token + 1, attempt = 0, requeues = j.requeues + 1,
           run_at = faultline.clock(),
           worker = NULL, lease_id = NULL, lease_expires_at = NULL, claimed_at = NULL
      FROM target t
     WHERE j.bucket = $1::smallint AND j.id = t.id AND t.state IN ('dead', 'held')
       AND t.token < 9223372036854775806
), booked AS (
    INSERT INTO faultline.ledger (bucket, job_id, token, attempt, outcome, state, requeues, queue, worker)
    SELECT $1::smallint, t.id, t.token + 1, 0, 'requeued', 'available', t.requeues + 1, t.queue, $3::text
      FROM target t WHERE t.state IN ('dead', 'held') AND t.token < 9223372036854775806
), tallied AS (
    INSERT INTO faultline.tallies (bucket, queue, available, held, dead)
    SELECT $1::smallint, t.queue, count(*), -count(*) FILTER (WHERE t.state = 'held'),
           -count(*) FILTER (WHERE t.state = 'dead')
      FROM target t WHERE t.state IN ('dead', 'held') AND t.token < 9223372036854775806 GROUP BY t.queue
)
SELECT t.id, t.state NOT IN ('dead', 'held') AS live, t.token >= 9223372036854775806 AS exhausted, t.queue
  FROM target t
