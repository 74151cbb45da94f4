-- What this login may do: the roles of Faultline whose rights it has, itself or through another role; and whether it sees what
-- other logins do.
SELECT r.rolsuper AS superuser,
       coalesce(ARRAY(SELECT g.rolname::text FROM pg_roles g
                       WHERE g.rolname IN ('faultline_owner', 'faultline_producer', 'faultline_worker',
                                           'faultline_reader')
                         AND pg_has_role(g.oid, 'USAGE')
                       ORDER BY g.rolname), '{}') AS roles,
       pg_has_role('pg_read_all_stats', 'USAGE') AS sees_others
  FROM pg_roles r
 WHERE r.rolname = current_user
