-- Live jobs that stand in another bucket than their id names: whoever looks for them by id looks elsewhere.
--
-- Costs one walk over the live jobs.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject,
           format('its id names bucket %s, and it is in bucket %s',
                  get_byte(uuid_send(j.id), 14) * 256 + get_byte(uuid_send(j.id), 15), j.bucket) AS detail
      FROM faultline.jobs j
     WHERE j.bucket = $1::smallint AND j.queue <> ''
       AND substr(uuid_send(j.id), 15) <> int2send(j.bucket)
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
