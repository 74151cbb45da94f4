-- What the ledger and the job say of an attempt that ended with its lease.
CREATE OR REPLACE FUNCTION faultline.loss_error(loss text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT 'worker lease expired: ' ||
           CASE loss WHEN 'unbegun' THEN 'this job was not known to have begun'
                     WHEN 'alone' THEN 'this job ran alone'
                     ELSE 'other jobs may have run beside this one' END
    $$;
