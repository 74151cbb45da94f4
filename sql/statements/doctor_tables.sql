-- How much of Faultline's tables is dead rows, how many updates stayed on their page, and whether they are vacuumed.
SELECT t.relname::text AS name, t.n_live_tup AS live, t.n_dead_tup AS dead, t.n_tup_upd AS updates,
       t.n_tup_hot_upd AS hot_updates,
       EXISTS (SELECT FROM pg_class c CROSS JOIN LATERAL unnest(c.reloptions) AS kept(setting)
                WHERE c.oid = t.relid AND kept.setting IN ('autovacuum_enabled=false', 'autovacuum_enabled=off'))
           AS vacuum_off,
       greatest(t.last_vacuum, t.last_autovacuum) AS vacuumed_at
  FROM pg_stat_user_tables t
 WHERE t.schemaname = 'faultline'
 ORDER BY t.relname
