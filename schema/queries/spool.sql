-- The spool's own file (SQLite, WAL mode): a durable log of encoded batches, one file a collector process.
-- https://www.sqlite.org/wal.html; synchronous=FULL makes each COMMIT wait for the disk.

-- name: create
-- Sequences never repeat, not even in a file made anew: a new file counts on from the clock (µs), which is
-- far ahead of any count of batches. plant.ingest_batch is keyed by them.
CREATE TABLE IF NOT EXISTS batch (
    sequence    INTEGER PRIMARY KEY AUTOINCREMENT,
    source_id   INTEGER NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('samples', 'events', 'gaps')),
    rows        INTEGER NOT NULL,
    received_at INTEGER NOT NULL,   -- µs
    first_time  INTEGER NOT NULL,   -- µs, source time of the oldest row
    last_time   INTEGER NOT NULL,   -- µs, source time of the newest row
    crc32       INTEGER NOT NULL,   -- of body
    body        BLOB    NOT NULL
);
CREATE TABLE IF NOT EXISTS note (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO sqlite_sequence (name, seq)
SELECT 'batch', CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'batch');

-- name: append
INSERT INTO batch (source_id, kind, rows, received_at, first_time, last_time, crc32, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: notes
SELECT name, value FROM note;

-- name: note
INSERT INTO note (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: unnote
DELETE FROM note WHERE name = ?;

-- name: take
-- The oldest batches behind a sequence; the reader stops fetching when it has rows enough.
SELECT sequence, source_id, kind, rows, received_at, first_time, last_time, crc32, body
FROM batch
WHERE sequence > ?
ORDER BY sequence;

-- name: one
SELECT source_id, kind, rows, received_at, first_time, last_time, crc32, body FROM batch WHERE sequence = ?;

-- name: delete
DELETE FROM batch WHERE sequence = ?;

-- name: depth
SELECT count(*), coalesce(sum(rows), 0) FROM batch;

-- name: oldest_received
-- Microseconds since 1970; NULL: nothing waits.
SELECT min(received_at) FROM batch;
