-- The spool's own file (SQLite, WAL mode): a durable log of encoded batches, one file a protocol.
-- https://www.sqlite.org/wal.html; synchronous=FULL makes each COMMIT wait for the disk.

-- name: create
-- Sequences never repeat, not even in a file made anew: a new file counts on from the clock (µs), which is
-- far ahead of any count of batches. plant.ingest_batch is keyed by them. first_sequence() is ours.
CREATE TABLE IF NOT EXISTS batch (
    sequence    INTEGER PRIMARY KEY AUTOINCREMENT,
    source_id   INTEGER NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('samples', 'events', 'gaps', 'counts')),
    rows        INTEGER NOT NULL,
    received_at INTEGER NOT NULL,   -- µs
    first_time  INTEGER NOT NULL,   -- µs, source time of the oldest row
    last_time   INTEGER NOT NULL,   -- µs, source time of the newest row
    crc32       INTEGER NOT NULL,   -- of body and all the other columns; of body alone in files of before version 1
    body        BLOB    NOT NULL
);
CREATE TABLE IF NOT EXISTS note (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    crc32 INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
INSERT INTO sqlite_sequence (name, seq)
SELECT 'batch', first_sequence()
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'batch');

-- name: has_table
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'batch';

-- name: allow_kinds
-- Files of before there were gaps (version 0), and counts (version 1).
UPDATE sqlite_master
SET sql = replace(replace(sql, 'CHECK (kind IN (''samples'', ''events''))', 'CHECK (kind IN (''samples'', ''events'', ''gaps''))'),
                  'CHECK (kind IN (''samples'', ''events'', ''gaps''))',
                  'CHECK (kind IN (''samples'', ''events'', ''gaps'', ''counts''))')
WHERE type = 'table' AND name = 'batch';

-- name: has_note
-- The table of before notes had checksums (version 0).
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'note' AND sql NOT LIKE '%crc32%';

-- name: note_crc
ALTER TABLE note ADD COLUMN crc32 INTEGER NOT NULL DEFAULT 0;

-- name: note_crc_fill
UPDATE note SET crc32 = note_crc32(name, value);

-- name: last
-- The highest sequence ever given.
SELECT seq FROM sqlite_sequence WHERE name = 'batch';

-- name: append
INSERT OR IGNORE INTO batch (sequence, source_id, kind, rows, received_at, first_time, last_time, crc32, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: notes
SELECT name, value, crc32 FROM note;

-- name: note
INSERT INTO note (name, value, crc32) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, crc32 = excluded.crc32;

-- name: unnote
DELETE FROM note WHERE name = ?;

-- name: take
-- The oldest batches behind a sequence; the reader stops fetching when it has rows enough.
SELECT sequence, source_id, kind, rows, received_at, first_time, last_time, crc32, body
FROM batch
WHERE sequence > ?
ORDER BY sequence;

-- name: waits
-- Whether there is a batch behind a sequence.
SELECT 1 FROM batch WHERE sequence > ? LIMIT 1;

-- name: oldest
-- The oldest batch that is left: everything before it is in the database.
SELECT sequence, received_at FROM batch ORDER BY sequence LIMIT 1;

-- name: one
SELECT source_id, kind, rows, received_at, first_time, last_time, crc32, body FROM batch WHERE sequence = ?;

-- name: delete
DELETE FROM batch WHERE sequence = ? RETURNING received_at;

-- name: depth
SELECT count(*), coalesce(sum(rows), 0) FROM batch;

-- name: oldest_waiting
-- When the batch that waits longest was received (µs): they are in the order of their arrival.
SELECT received_at FROM batch ORDER BY sequence LIMIT 1;

-- name: oldest_received
-- Microseconds since 1970; NULL: nothing waits.
SELECT min(received_at) FROM batch;

-- name: by_source
SELECT source_id, kind, count(*) AS batches, sum(rows) AS rows, sum(length(body)) AS bytes,
       min(received_at) AS oldest, max(received_at) AS newest
FROM batch
GROUP BY source_id, kind
ORDER BY source_id, kind;

-- name: count_from
-- A repaired file never gives a sequence again: it goes on from the clock, or from what was given, if that is more.
UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'batch';
