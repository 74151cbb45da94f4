-- The standbys, and the slots that nobody reads from: these make the server keep its log until the disk is full.
SELECT 'standby' AS what, coalesce(nullif(r.application_name, ''), r.pid::text) AS name, r.sync_state AS state
  FROM pg_stat_replication r
UNION ALL
SELECT 'slot', s.slot_name::text, 'inactive'
  FROM pg_replication_slots s
 WHERE NOT s.active
 ORDER BY 1, 2
