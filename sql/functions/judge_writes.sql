-- Judges writes by their leases: says whether each is good, and if it is not why, and keeps the evidence if there is such a job. It changes
-- nothing else, and holds the rows until the end of the transaction: what the caller writes in the same transaction under
-- a good lease is covered by the fence. Verbs on hot paths call it for the writes that they could not carry out, the
-- others before they write.
--
--   cancelled        the job was cancelled, or is to be
--   token_mismatch   a newer token was minted since; or the number is the same and the lease id is not
--                    (a number reissued after a failover); or there is no such job
--   lease_expired    the token is still the newest, its time is over
--   already_settled  the token is still the newest, its attempt has ended already, in another way; evidence if
--                    it was no heartbeat and no progress, which may have been under way when their own worker settled
--
-- Not refused, and without evidence:
--   repeated         this very settlement is on record, by the same lease with the same outcome: it was sent twice,
--                    because its answer was lost or the network delivered it again, and is told the same again
--   good             the lease is the current one, and its time is not over
--
-- The rows are locked first, in one order so that two of these never wait for each other in a circle, and judged by a
-- statement and a time that lie after the wait.
--
-- in_workers and in_verbs have one element per write, or one for all. in_outcomes: NULL where the verb settles nothing.
CREATE OR REPLACE FUNCTION faultline.judge_writes(
    in_bucket smallint, in_ids uuid[], in_tokens bigint[], in_lease_ids uuid[], in_workers text[], in_verbs text[],
    in_outcomes faultline.outcome[], in_results bytea[], in_errors text[])
RETURNS SETOF faultline.verdict
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz;
    verdicts faultline.verdict[];
    evidence faultline.verdict[];
BEGIN
    IF cardinality(in_ids) > 1000 OR cardinality(in_tokens) IS DISTINCT FROM cardinality(in_ids)
       OR cardinality(in_lease_ids) IS DISTINCT FROM cardinality(in_ids)
       OR cardinality(in_workers) NOT IN (1, cardinality(in_ids)) OR cardinality(in_verbs) NOT IN (1, cardinality(in_ids))
       OR cardinality(in_outcomes) NOT IN (1, cardinality(in_ids)) OR cardinality(in_results) <> cardinality(in_ids)
       OR cardinality(in_errors) <> cardinality(in_ids) THEN
        RAISE EXCEPTION 'the arrays of a call have one element per lease, and 1000 at most' USING ERRCODE = 'FL400';
    END IF;
    IF array_position(in_ids, NULL) IS NOT NULL OR array_position(in_tokens, NULL) IS NOT NULL
       OR array_position(in_lease_ids, NULL) IS NOT NULL OR array_position(in_workers, NULL) IS NOT NULL
       OR array_position(in_verbs, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'a write has a job, a token, a lease id, a worker and a verb' USING ERRCODE = 'FL400';
    END IF;
    PERFORM FROM (SELECT j.id FROM faultline.jobs j
                   WHERE j.bucket = in_bucket AND j.id = ANY (in_ids)
                   ORDER BY j.id FOR UPDATE) AS locked;
    time_now := faultline.clock_now();
    SELECT array_agg(ROW(g.id, g.token, g.lease_id,
                         CASE WHEN g.repeated THEN 'repeated' WHEN g.reason IS NULL THEN 'good' ELSE 'stale' END,
                         g.reason, g.verb, g.worker, g.queue, g.current_token, g.current_worker,
                         g.current_state, g.lease_expires_at)::faultline.verdict)
      INTO verdicts
      FROM (
        SELECT mine.id, mine.token, mine.lease_id, coalesce(mine.worker, in_workers[1]) AS worker,
               coalesce(mine.verb, in_verbs[1]) AS verb,
               coalesce(j.queue, last.queue) AS queue,
               coalesce(j.token, last.token) AS current_token,
               CASE WHEN j.id IS NOT NULL THEN j.worker ELSE last.worker END AS current_worker,
               coalesce(j.state, last.state) AS current_state,
               -- The late writer's own, not its successor's.
               CASE WHEN j.lease_id = mine.lease_id AND j.token = mine.token THEN j.lease_expires_at
                    WHEN own.lease_id = mine.lease_id THEN own.lease_expires_at END AS lease_expires_at,
               own.repeated,
               CASE WHEN own.repeated THEN NULL
                    WHEN j.id IS NULL AND last.state = 'cancelled' THEN 'cancelled'
                    WHEN coalesce(j.token, last.token) IS DISTINCT FROM mine.token THEN 'token_mismatch'
                    WHEN coalesce(j.lease_id, own.lease_id) IS DISTINCT FROM mine.lease_id THEN 'token_mismatch'
                    WHEN own.outcome = 'expired' THEN 'lease_expired'
                    WHEN own.outcome = 'cancelled' THEN 'cancelled'
                    WHEN own.outcome IS NOT NULL THEN 'already_settled'
                    WHEN j.lease_expires_at <= time_now THEN 'lease_expired'
                    WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
               END::faultline.stale_reason AS reason
          FROM unnest(in_ids, in_tokens, in_lease_ids, in_workers, in_verbs, in_outcomes, in_results, in_errors)
               AS mine(id, token, lease_id, worker, verb, outcome, result, error)
          LEFT JOIN LATERAL (
               SELECT t.id, t.queue, t.token, t.lease_id, t.worker, t.state, t.lease_expires_at,
                      t.cancel_requested_at
                 FROM faultline.jobs t WHERE t.bucket = in_bucket AND t.id = mine.id LIMIT 1) AS j ON true
          LEFT JOIN LATERAL (
               SELECT l.lease_id, l.outcome, l.lease_expires_at,
                      -- What came after the lease's time was the watchdog's doing.
                      l.lease_id = mine.lease_id AND l.outcome = coalesce(mine.outcome, in_outcomes[1])
                      AND l.ended_at < l.lease_expires_at
                      AND CASE l.outcome WHEN 'succeeded' THEN l.result IS NOT DISTINCT FROM mine.result
                                         WHEN 'cancelled' THEN mine.error IS NULL OR l.error = mine.error
                                         ELSE l.error IS NOT DISTINCT FROM mine.error END AS repeated
                 FROM faultline.ledger l
                WHERE l.bucket = in_bucket AND l.job_id = mine.id AND l.token = mine.token LIMIT 1) AS own ON true
          LEFT JOIN LATERAL (
               SELECT l.token, l.worker, l.state, l.queue
                 FROM faultline.ledger l
                WHERE l.bucket = in_bucket AND l.job_id = mine.id
                ORDER BY l.token DESC LIMIT 1) AS last ON true) AS g;
    evidence := ARRAY(
        SELECT v
          FROM unnest(verdicts) AS v
         CROSS JOIN LATERAL (
               SELECT count(*) AS number
                 FROM (SELECT FROM faultline.stale_writes t
                        WHERE t.bucket = in_bucket AND t.job_id = v.id LIMIT 100) AS s) AS record
         -- About a job that is on record: there is no evidence to keep of what is made up, and nobody would ever retire it.
         WHERE v.reason IS NOT NULL AND v.current_state IS NOT NULL
           -- A worker's own settlement has overtaken its own heartbeat: that is refused, and no sign of anything.
           AND NOT (v.reason = 'already_settled' AND v.verb IN ('heartbeat', 'progress'))
           -- A hundred tell of a job what there is to tell: nobody fills the table with writes that he makes up.
           AND record.number < 100);
    IF evidence <> '{}' THEN
        INSERT INTO faultline.stale_writes (
               bucket, job_id, at, verb, reason, queue, token, lease_id, worker,
               current_token, current_worker, current_state, lease_expired_at)
        SELECT in_bucket, v.id, time_now, v.verb, v.reason, v.queue, v.token, v.lease_id, v.worker,
               v.current_token, v.current_worker, v.current_state, v.lease_expires_at
          FROM unnest(evidence) AS v;
    END IF;
    RETURN QUERY SELECT v.* FROM unnest(verdicts) AS v;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.judge_writes TO faultline_owner, faultline_worker;
