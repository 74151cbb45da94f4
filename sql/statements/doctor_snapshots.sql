-- What holds vacuum back in this database, oldest first: open snapshots, prepared transactions, and what standbys
-- and replication slots still need. Rows that died since then cannot be removed by anybody. Of a session of another login
-- only the snapshot is shown to a role without pg_read_all_stats, neither what it does nor since when.
--
-- $1 rows at most
SELECT held.what, held.pid, held.who, held.state, held.transactions::bigint, held.age_seconds
  FROM (SELECT CASE a.backend_type WHEN 'walsender' THEN 'standby' ELSE 'session' END AS what, a.pid,
               format('%s, login %s', coalesce(nullif(a.application_name, ''), 'no application name'), a.usename) AS who,
               coalesce(a.state, a.backend_type, 'not shown to this login') AS state,
               age(a.backend_xmin) AS transactions,
               extract(epoch FROM faultline.clock() - coalesce(a.xact_start, a.query_start, a.backend_start))::float8
                   AS age_seconds
          FROM pg_stat_activity a
         WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
           AND (a.datname = current_database() OR a.backend_type = 'walsender')
        UNION ALL
        SELECT 'prepared transaction', NULL, format('%s, login %s', p.gid, p.owner), 'prepared', age(p.transaction),
               extract(epoch FROM faultline.clock() - p.prepared)::float8
          FROM pg_prepared_xacts p
         WHERE p.database = current_database()
        UNION ALL
        -- A slot does not say since when.
        SELECT 'replication slot', s.active_pid, s.slot_name::text, CASE WHEN s.active THEN 'active' ELSE 'inactive' END,
               greatest(age((to_jsonb(s) ->> 'xmin')::xid), age(s.catalog_xmin)), NULL
          FROM pg_replication_slots s
         WHERE coalesce(to_jsonb(s) ->> 'xmin', s.catalog_xmin::text) IS NOT NULL) AS held
 ORDER BY held.transactions DESC, held.age_seconds DESC NULLS LAST
 LIMIT $1::bigint
