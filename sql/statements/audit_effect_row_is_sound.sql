-- Effects that say what cannot be: recorded and taken back, or with a result and not recorded; and decisions of people that
-- the effect which they are about does not show.
--
-- Costs one walk over the effects, and one over the decisions with a look at the effect for each.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT e.job_id::text AS subject,
           format('effect %s of token %s was recorded at %s and taken back at %s, %s', e.key, e.token,
                  coalesce(e.recorded_at::text, 'no time'), coalesce(e.forgotten_at::text, 'no time'),
                  CASE WHEN e.result IS NULL THEN 'without a result' ELSE 'with a result' END) AS detail
      FROM faultline.effects e
     WHERE e.bucket = $1::smallint
       AND (e.recorded_at IS NOT NULL AND e.forgotten_at IS NOT NULL OR e.recorded_at IS NULL AND e.result IS NOT NULL
            OR e.token < 1 OR NOT isfinite(e.started_at) OR NOT isfinite(e.recorded_at) OR NOT isfinite(e.forgotten_at))
    UNION ALL
    SELECT d.job_id::text,
           format('%s said that effect %s of token %s %s, and it is %s', d.decided_by, d.key, d.token,
                  CASE WHEN d.happened THEN 'happened' ELSE 'did not happen' END,
                  CASE WHEN e.job_id IS NULL THEN 'not on record'
                       WHEN e.recorded_at IS NOT NULL THEN format('recorded under token %s', e.token)
                       WHEN e.forgotten_at IS NOT NULL THEN format('taken back under token %s', e.token)
                       ELSE format('open under token %s', e.token) END)
      FROM faultline.effect_decisions d
      LEFT JOIN faultline.effects e ON e.bucket = $1::smallint AND e.job_id = d.job_id AND e.key = d.key
     WHERE d.bucket = $1::smallint
       AND (e.job_id IS NULL OR e.token < d.token
            OR d.happened AND (e.token <> d.token OR e.recorded_at IS NULL)
            OR NOT d.happened AND e.token = d.token AND e.forgotten_at IS NULL)
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
