-- Notes how far running jobs are. Fenced like every write: `committed`, or why not.
CREATE OR REPLACE FUNCTION faultline.report_progress(
    in_bucket smallint, in_ids uuid[], in_tokens bigint[], in_lease_ids uuid[], in_workers text[],
    in_fractions float8[], in_notes text[])
RETURNS SETOF faultline.verdict
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    verdicts faultline.verdict[];
    good     uuid[];
BEGIN
    IF coalesce(cardinality(in_ids), 1001) > 1000 OR cardinality(in_tokens) IS DISTINCT FROM cardinality(in_ids)
       OR cardinality(in_lease_ids) IS DISTINCT FROM cardinality(in_ids)
       OR coalesce(cardinality(in_workers), 0) NOT IN (1, cardinality(in_ids))
       OR cardinality(in_fractions) IS DISTINCT FROM cardinality(in_ids) OR cardinality(in_notes) <> cardinality(in_ids) THEN
        RAISE EXCEPTION 'the arrays of a call have one element per lease, and 1000 at most' USING ERRCODE = 'FL400';
    END IF;
    IF EXISTS (SELECT FROM unnest(in_fractions) AS f(fraction)
                WHERE f.fraction IS NULL OR f.fraction NOT BETWEEN 0 AND 1)
       OR EXISTS (SELECT FROM unnest(in_notes) AS n(note) WHERE octet_length(n.note) > 65536) THEN
        RAISE EXCEPTION 'progress is a fraction from 0 to 1 and a note of at most 64 KiB' USING ERRCODE = 'FL400';
    END IF;
    verdicts := ARRAY(SELECT v FROM faultline.judge_writes(
                          in_bucket, in_ids, in_tokens, in_lease_ids, in_workers, ARRAY['progress'], NULL, NULL, NULL) AS v);
    good := ARRAY(SELECT v.id FROM unnest(verdicts) AS v WHERE v.status = 'good');
    UPDATE faultline.jobs j
       SET progress = mine.fraction, progress_note = mine.note
      FROM unnest(in_ids, in_tokens, in_fractions, in_notes) AS mine(id, token, fraction, note)
     WHERE mine.token > 0 AND mine.token <= 9223372036854775807 AND mine.id = ANY (good)
       AND j.bucket = in_bucket AND j.id = mine.id AND j.token = mine.token;
    RETURN QUERY
    SELECT v.id, v.token, v.lease_id, CASE v.status WHEN 'good' THEN 'committed' ELSE v.status END, v.reason, v.verb,
           v.worker, v.queue, v.current_token, v.current_worker, v.current_state,
           v.lease_expires_at
      FROM unnest(verdicts) AS v;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.report_progress TO faultline_owner, faultline_worker;
