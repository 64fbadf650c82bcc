-- Seals of closed days: signed and chained digests of the stored data, which locate any later change.
-- history/standalone.py defines what they cover. The first four tables are append-only: even the owner has no other
-- privilege, and a trigger rejects changes (routines/evidence/refuse_change.sql).
--
-- Each installation has a chain of seals, made with its own keys: chain is the number of the installation. A seal
-- covers the channels of one installation, or of all (installation 0:
-- made by the first one while it was alone in the database).

CREATE TABLE plant.seal_key (
    fingerprint      bytea       PRIMARY KEY CHECK (octet_length(fingerprint) = 32),
    public           bytea       NOT NULL CHECK (octet_length(public) = 32),
    made_at          timestamptz NOT NULL,
    succeeds         bytea       REFERENCES plant.seal_key (fingerprint),
    own_signature    bytea       NOT NULL,
    former_signature bytea,
    chain            int         NOT NULL CHECK (chain > 0)
);
COMMENT ON TABLE plant.seal_key IS
    'Public keys of the seals. Each key is signed by the one that it succeeds, unless that one was lost.';
COMMENT ON COLUMN plant.seal_key.chain IS 'Number of the installation that the key belongs to.';

CREATE TABLE plant.seal_document (
    digest  bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    content text  COMPRESSION lz4 NOT NULL
);
COMMENT ON TABLE plant.seal_document IS
    'Meaning of the channel ids (name, unit, address), as JSON. One row for each state that was sealed.';

CREATE TABLE plant.day_seal (
    serial         bigint      NOT NULL CHECK (serial > 0),
    day            date        NOT NULL,
    revision       int         NOT NULL CHECK (revision >= 0),
    kind           text        NOT NULL CHECK (kind = CASE revision WHEN 0 THEN 'first' ELSE 'amended' END),
    root           bytea       NOT NULL,
    previous       bytea       NOT NULL,
    read_from      timestamptz NOT NULL,
    sealed_at      timestamptz NOT NULL,
    samples        bigint      NOT NULL,
    channels       int         NOT NULL,
    events         bigint      NOT NULL,
    gaps           int         NOT NULL,
    document       bytea       NOT NULL REFERENCES plant.seal_document (digest),
    events_n       int[]       NOT NULL,
    events_digests bytea       NOT NULL,
    gaps_digest    bytea       NOT NULL,
    differs        text        COMPRESSION lz4 NOT NULL,
    key            bytea       NOT NULL REFERENCES plant.seal_key (fingerprint),
    signature      bytea       NOT NULL,
    installation   int         NOT NULL CHECK (installation >= 0),
    chain          int         NOT NULL GENERATED ALWAYS AS (greatest(installation, 1)) STORED,
    PRIMARY KEY (day, installation, revision),
    UNIQUE (chain, serial)
);
COMMENT ON TABLE plant.day_seal IS
    'Seals, by installation in the order of sealing. Each contains the hash of the previous one of its chain. Late '
    'data lead to an amended seal of the same day.';
COMMENT ON COLUMN plant.day_seal.day IS 'The day, in UTC.';
COMMENT ON COLUMN plant.day_seal.differs IS
    'Amended seals: the channels and hours that differ from the previous revision, by how many rows, and why. JSON.';
COMMENT ON COLUMN plant.day_seal.installation IS
    'Number of the installation whose channels, events and gaps the seal covers. 0: all of the database.';
COMMENT ON COLUMN plant.day_seal.chain IS 'Number of the installation that made the seal.';

-- The digests of a channel's 24 hours, concatenated; hours without samples have none. An amended seal has only the
-- channels that differ.
CREATE TABLE plant.seal_digest (
    day          date  NOT NULL,
    revision     int   NOT NULL,
    channel_id   int   NOT NULL,
    n            int[] NOT NULL CHECK (cardinality(n) = 24),
    digests      bytea NOT NULL,
    installation int   NOT NULL,
    PRIMARY KEY (day, installation, channel_id, revision),
    FOREIGN KEY (day, installation, revision) REFERENCES plant.day_seal (day, installation, revision)
);
COMMENT ON TABLE plant.seal_digest IS
    'Digests of each channel in a seal. An amended seal has rows only for channels that differ; for the others, the '
    'newest row of an earlier revision applies.';

-- The days that are being sealed: the digests so far, and the progress. The transaction that adds the seal empties it.
CREATE TABLE plant.seal_progress (
    day       date        NOT NULL,
    read_from timestamptz NOT NULL,
    hour      smallint    NOT NULL,
    behind    int         NOT NULL,
    chain     int         NOT NULL,
    PRIMARY KEY (chain, day)
);
COMMENT ON TABLE plant.seal_progress IS
    'Progress of sealing a day: the hours before hour are complete, and in that hour the channels up to behind.';
CREATE TABLE plant.seal_work (
    day        date     NOT NULL,
    channel_id int      NOT NULL,
    hour       smallint NOT NULL,
    n          int      NOT NULL,
    digest     bytea    NOT NULL,
    chain      int      NOT NULL,
    PRIMARY KEY (chain, day, channel_id, hour)
);

GRANT SELECT, INSERT ON plant.seal_key, plant.seal_document, plant.day_seal, plant.seal_digest TO plant_owner;
GRANT ALL ON plant.seal_progress, plant.seal_work TO plant_owner;

-- Receipts are written in the transaction of what they are for: the snapshot that seals a day has both or neither.
CREATE TABLE plant.receipt (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    day        date        NOT NULL,
    kind       text        NOT NULL CHECK (kind IN ('samples', 'events', 'gap', 'retention')),
    content    bytea       NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    signer     bytea,
    signature  bytea
);
CREATE INDEX receipt_day ON plant.receipt (day, kind);
COMMENT ON TABLE plant.receipt IS
    'What came to a sealed day since its newest seal, and what retention dropped. A claim and no proof: an amended '
    'seal proves by it that all that was sealed is still there.';
COMMENT ON COLUMN plant.receipt.content IS
    'samples: channel (int4) and time (int8, µs since 1970) of each; events: time (int8) and id (int8) of each, '
    'big-endian. gap and retention: JSON.';
COMMENT ON COLUMN plant.receipt.signature IS
    'Of the kinds gap and retention: by the key signer, with which the installation seals.';
GRANT INSERT ON plant.receipt TO plant_ingest, plant_maintenance;
GRANT SELECT, UPDATE (signer, signature) ON plant.receipt TO plant_ingest;
GRANT ALL ON plant.receipt TO plant_owner;
