-- What `plantlog admin database` asks the monitor of pg_auto_failover, and the primary.

-- name: format_role
-- A superuser $1 with password $2, if it is missing. NULL: it comes by the server's own socket, as the system's user.
SELECT format('CREATE ROLE %I SUPERUSER REPLICATION LOGIN PASSWORD %L', $1::text, $2::text)
WHERE NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = $1);

-- name: format_monitor_login
-- The login $1 of nodes at the monitor, with password $2.
SELECT format('CREATE ROLE %I LOGIN PASSWORD %L', $1::text, $2::text)
WHERE NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = $1);

-- name: select_nodes
-- The nodes that the monitor knows. health: 1 it answers, 0 it does not, -1 not known yet.
SELECT n.nodename AS name, n.nodehost AS address, n.nodeport AS port, n.current_group_state::text AS state,
       n.assigned_group_state::text AS assigned, n.health, n.reported_tli AS timeline,
       (max(n.reported_lsn) OVER () - n.reported_lsn)::int8 AS bytes_behind
FROM pgautofailover.current_state() AS n
ORDER BY n.nodehost, n.nodeport;

-- name: switch_over
-- The standby becomes the primary, and the primary its standby.
SELECT pgautofailover.perform_failover();

-- name: remove_node
-- The monitor forgets the node at address $1 and port $2, whatever that says.
SELECT pgautofailover.remove_node($1::text, $2::int, TRUE);

-- name: base_backup_waits
-- Whether a base backup waits for a checkpoint, which takes its time where nobody asks for it.
SELECT EXISTS (SELECT FROM pg_stat_progress_basebackup AS b WHERE b.phase = 'waiting for checkpoint to finish');

-- name: checkpoint
CHECKPOINT;
