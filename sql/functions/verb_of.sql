-- What the evidence calls the write that ends an attempt with this outcome.
CREATE OR REPLACE FUNCTION faultline.verb_of(outcome faultline.outcome) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE outcome WHEN 'succeeded' THEN 'complete' WHEN 'failed' THEN 'fail' WHEN 'buried' THEN 'bury'
                        WHEN 'snoozed' THEN 'snooze' WHEN 'released' THEN 'release' WHEN 'cancelled' THEN 'cancel' END
    $$;
