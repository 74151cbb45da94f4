-- Effects under a lease that never was: the job neither runs with that token and lease id, nor does its ledger know an
-- attempt that had them.
--
-- Costs one walk over the effects, with a look at the job and one into the ledger for each.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT e.job_id::text AS subject,
           format('effect %s was begun or recorded under token %s and a lease that nobody had, by %s', e.key, e.token, e.worker)
               AS detail
      FROM faultline.seen_effects e
     WHERE e.bucket = $1::smallint
       AND NOT EXISTS (SELECT FROM faultline.seen_ledger l
                        WHERE l.bucket = $1::smallint AND l.job_id = e.job_id AND l.token = e.token
                          AND l.lease_mark = e.lease_mark)
       AND NOT EXISTS (SELECT FROM faultline.seen_jobs j
                        WHERE j.bucket = $1::smallint AND j.id = e.job_id AND j.token = e.token
                          AND j.lease_mark = e.lease_mark)
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
