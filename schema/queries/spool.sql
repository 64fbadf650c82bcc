-- The spool file (SQLite, WAL mode): a durable log of encoded batches, one file a protocol. synchronous=FULL makes each
-- COMMIT wait for the disk. https://www.sqlite.org/wal.html

-- name: create_tables
-- Sequences never repeat, not even in a new file: it counts on from the clock (µs), which is far ahead of any count of
-- batches. They are the key of plant.ingest_batch. first_sequence() is a function of the application.
CREATE TABLE batch (
    sequence    INTEGER PRIMARY KEY AUTOINCREMENT,
    source_id   INTEGER NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('samples', 'events', 'gaps', 'counts')),
    rows        INTEGER NOT NULL,
    received_at INTEGER NOT NULL,   -- µs
    first_time  INTEGER NOT NULL,   -- µs, source time of the oldest row
    last_time   INTEGER NOT NULL,   -- µs, source time of the newest row
    crc32       INTEGER NOT NULL,   -- of body and all the other columns
    body        BLOB    NOT NULL
);
CREATE TABLE note (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    crc32 INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
INSERT INTO sqlite_sequence (name, seq) VALUES ('batch', first_sequence());

-- name: select_last_sequence
-- The highest sequence ever assigned.
SELECT seq FROM sqlite_sequence WHERE name = 'batch';

-- name: insert_batch
INSERT OR IGNORE INTO batch (sequence, source_id, kind, rows, received_at, first_time, last_time, crc32, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: select_notes
SELECT name, value, crc32 FROM note;

-- name: upsert_note
INSERT INTO note (name, value, crc32) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, crc32 = excluded.crc32;

-- name: delete_note
DELETE FROM note WHERE name = ?;

-- name: select_batches
-- Batches after a sequence, oldest first; the reader stops fetching when it has enough rows.
SELECT sequence, source_id, kind, rows, received_at, first_time, last_time, crc32, body
FROM batch
WHERE sequence > ?
ORDER BY sequence;

-- name: has_batch_after
-- Whether there is a batch after a sequence.
SELECT 1 FROM batch WHERE sequence > ? LIMIT 1;

-- name: select_oldest_batch
-- The oldest remaining batch: everything before it is in the database.
SELECT sequence, received_at FROM batch ORDER BY sequence LIMIT 1;

-- name: select_batch
SELECT source_id, kind, rows, received_at, first_time, last_time, crc32, body FROM batch WHERE sequence = ?;

-- name: delete_batch
DELETE FROM batch WHERE sequence = ? RETURNING received_at;

-- name: count_batches
SELECT count(*), coalesce(sum(rows), 0) FROM batch;

-- name: select_oldest_received_at
-- When the oldest batch was received (µs): batches are in the order of their arrival.
SELECT received_at FROM batch ORDER BY sequence LIMIT 1;

-- name: select_oldest_sample_received_at
SELECT received_at FROM batch WHERE kind = 'samples' ORDER BY sequence LIMIT 1;

-- name: select_min_received_at
-- Microseconds since 1970; NULL: no batch.
SELECT min(received_at) FROM batch;

-- name: select_min_received_at_of_data
-- The same without events: the standby of a redundant pair keeps what it said last.
SELECT min(received_at) FROM batch WHERE kind <> 'events';

-- name: select_min_first_time
-- Source time of the oldest row; NULL: no batch.
SELECT min(first_time) FROM batch;

-- name: count_batches_by_source
SELECT source_id, kind, count(*) AS batches, sum(rows) AS rows, sum(length(body)) AS bytes,
       min(received_at) AS oldest, max(received_at) AS newest
FROM batch
GROUP BY source_id, kind
ORDER BY source_id, kind;

-- name: update_last_sequence
-- A repaired file never reuses a sequence: it continues from the clock, or from the last sequence if that is higher.
UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'batch';
