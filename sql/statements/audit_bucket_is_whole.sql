-- What the schema was made with and what must stay: the place of the round that retires jobs, and the ballast that keeps
-- plans steady. Without the first, nothing is ever retired.
--
-- Costs a look at a hundred rows.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT 'retention' AS subject, 'there is no place of the round that retires jobs' AS detail
     WHERE NOT EXISTS (SELECT FROM faultline.retention r WHERE r.bucket = $1::smallint)
    UNION ALL
    SELECT 'jobs', format('there are %s rows of ballast that wait for nobody, and there should be 100', b.rows)
      FROM (SELECT count(*) AS rows FROM faultline.jobs j
             WHERE j.bucket = $1::smallint AND j.queue = '' AND j.priority >= 0 AND j.state = 'dead'
               AND j.run_at = 'infinity') AS b
     WHERE b.rows <> 100
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
