-- What the server is, and those of its settings on which it depends whether what was acknowledged survives.
SELECT current_setting('server_version') AS version, current_user::text AS role, current_database()::text AS database,
       pg_is_in_recovery() AS standby,
       current_setting('fsync')::boolean AS fsync,
       current_setting('full_page_writes')::boolean AS full_page_writes,
       -- With what a session begins; Faultline's own set it by themselves.
       (SELECT g.reset_val FROM pg_settings g WHERE g.name = 'synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS synchronous_standby_names,
       current_setting('data_checksums')::boolean AS data_checksums,
       current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean AS autovacuum,
       current_setting('max_connections')::bigint
           - current_setting('superuser_reserved_connections')::bigint AS connections_max,
       (SELECT count(*) FROM pg_stat_activity a
         -- Of other logins' sessions a role without pg_read_all_stats sees the database alone.
         WHERE coalesce(a.backend_type, 'client backend') = 'client backend' AND a.datid IS NOT NULL) AS connections
