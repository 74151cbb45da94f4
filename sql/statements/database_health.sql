-- What endangers the whole database server from the side: a snapshot that is held for long keeps vacuum from
-- removing dead rows, of which a queue makes many; and connections run out.
--
-- An age in seconds is known of transactions and prepared transactions; of a replication slot or a standby only how
-- many transactions ago its snapshot was. What other roles do is shown as far as this role may see it (pg_monitor may).
SELECT greatest(
           (SELECT extract(epoch FROM max(faultline.clock() - a.xact_start))
              FROM pg_stat_activity a
             WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
               AND a.backend_type = 'client backend'),
           (SELECT extract(epoch FROM max(faultline.clock() - p.prepared)) FROM pg_prepared_xacts p),
           0)::float8 AS oldest_snapshot_age,
       greatest(
           (SELECT max(age(a.backend_xmin)) FROM pg_stat_activity a WHERE a.pid <> pg_backend_pid()),
           (SELECT max(age(p.transaction)) FROM pg_prepared_xacts p),
           (SELECT max(greatest(age((to_jsonb(s) ->> 'xmin')::xid), age(s.catalog_xmin))) FROM pg_replication_slots s),
           0)::float8 AS oldest_xmin_age,
       (SELECT count(*) FROM pg_stat_activity a
         -- Of other logins' sessions a role without pg_read_all_stats sees the database alone.
         WHERE coalesce(a.backend_type, 'client backend') = 'client backend' AND a.datid IS NOT NULL)::float8 AS connections,
       current_setting('max_connections')::float8 AS connections_max
