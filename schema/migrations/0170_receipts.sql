-- Receipts of what comes to sealed days.
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
COMMENT ON TABLE plant.receipt IS 'What came to a sealed day since its newest seal, and what retention dropped. A claim and no proof: an amended seal proves by it that all that was sealed is still there.';
COMMENT ON COLUMN plant.receipt.content IS 'samples: channel (int4) and time (int8, µs since 1970) of each; events: time (int8) and id (int8) of each, big-endian. gap and retention: JSON.';
COMMENT ON COLUMN plant.receipt.signature IS 'Of the kinds gap and retention: by the key signer, with which the installation seals.';
GRANT INSERT ON plant.receipt TO plant_ingest, plant_maintenance;
GRANT SELECT, UPDATE (signer, signature) ON plant.receipt TO plant_ingest;
GRANT ALL ON plant.receipt TO plant_owner;

-- squawk-ignore ban-drop-table
DROP TABLE plant.seal_evidence;
