-- Renews a lease, by the TTL that it was granted with or by `extend`. `stale`: it is lost, stop the work. A job that is to
-- be cancelled keeps its lease as it is, and cancel_requested says so.
CREATE OR REPLACE FUNCTION faultline.heartbeat(
    job uuid, token bigint, lease_id uuid, extend interval DEFAULT NULL,
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text,
    OUT lease_expires_at timestamptz, OUT cancel_requested boolean, OUT cancel_reason text)
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    place smallint := faultline.lease_bucket(job, token, lease_id);
BEGIN
    SELECT r.status, r.reason, r.current_token, r.current_worker, r.current_state, r.lease_expires_at,
           coalesce(r.cancel_requested, false), r.cancel_reason
      INTO status, reason, current_token, current_worker, current_state, lease_expires_at, cancel_requested, cancel_reason
      FROM faultline.renew_leases(
          place, ARRAY[job], ARRAY[token], ARRAY[lease_id], ARRAY[faultline.lease_holder(place, job, token, lease_id)],
          ARRAY[faultline.to_ms(extend)], 'heartbeat', NULL, NULL) AS r;
END
$$;
COMMENT ON FUNCTION faultline.heartbeat IS 'Renews a lease: `committed`, or `stale` when it is lost.';
GRANT EXECUTE ON FUNCTION faultline.heartbeat TO faultline_owner, faultline_worker;
