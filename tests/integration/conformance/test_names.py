"""Every name that is promised above the schema is there, with the same columns and parameters on either edition."""

from __future__ import annotations

from tests.database import connected
from tests.integration.conformance.plant import ConformancePlant

_SAMPLE = "time timestamp with time zone, channel_id integer, value double precision, status integer"
_RELATIONS = {
    "samples": _SAMPLE,
    "samples_named": (
        "time timestamp with time zone, name text, value double precision, unit text, quality text, status integer,"
        " channel_id integer"
    ),
    "coverage": (
        "day date, channel_id integer, name text, expected bigint, got bigint, got_good bigint,"
        " missing bigint, missing_seconds double precision, backfilled_seconds double precision, quarantined bigint"
    ),
}
_STORAGE = "TABLE(relation text, form text, day timestamp with time zone, rows bigint, bytes bigint)"
_BETWEEN = '"from" timestamp with time zone, "to" timestamp with time zone'
_TABLE = f"TABLE({_SAMPLE.replace('time ', chr(34) + 'time' + chr(34) + ' ', 1)})"
_ROUTINES = {
    ("samples_between", f"channels integer[], {_BETWEEN}", "f", _TABLE),
    ("samples_between", _BETWEEN, "f", _TABLE),
    ("storage", "", "f", _STORAGE),
    ("compression", "", "f", "text"),
}


async def test_both_editions_have_the_same_relations(plant: ConformancePlant) -> None:
    rows = await plant.owner.fetch(
        "SELECT c.relname, string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)"
        " FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND attnum > 0 AND NOT attisdropped"
        " WHERE c.relnamespace = 'plant'::regnamespace AND c.relname = ANY ($1) GROUP BY 1",
        list(_RELATIONS),
    )
    assert dict(map(tuple, rows)) == _RELATIONS


async def test_both_editions_have_the_same_routines(plant: ConformancePlant) -> None:
    rows = await plant.owner.fetch(
        "SELECT proname, pg_get_function_identity_arguments(oid), prokind::text, pg_get_function_result(oid)"
        " FROM pg_proc WHERE pronamespace = 'plant'::regnamespace AND proname = ANY ($1)",
        [name for name, *_ in _ROUTINES],
    )
    assert {tuple(row) for row in rows} == _ROUTINES


async def test_both_editions_have_the_same_settings(plant: ConformancePlant) -> None:
    licence = await plant.owner.fetchval("SELECT current_setting('timescaledb.license')")
    assert plant.edition == {"apache": "apache", "timescale": "community"}[licence]
    version = await plant.owner.fetchval("SELECT value FROM plant.setting WHERE key = 'timescaledb_version'")
    assert version == await plant.owner.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'")

    # A replay of old samples may meet any number of columnstored ones.
    async with connected(plant.database.ingest_dsn) as ingest:
        limit = await ingest.fetchval("SHOW timescaledb.max_tuples_decompressed_per_dml_transaction")
    assert limit == {"apache": "100000", "community": "0"}[plant.edition]


async def test_no_object_blocks_an_update_of_timescaledb(plant: ConformancePlant) -> None:
    """An update makes TimescaleDB's views and functions anew: none of ours may depend on one of them.

    But for time_bucket, which is in everybody's views, so that updates leave it in place.
    """
    rows = await plant.owner.fetch(
        """
        SELECT pg_describe_object(d.classid, d.objid, d.objsubid) AS ours,
               pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid) AS theirs
        FROM pg_depend AS d
        JOIN pg_depend AS member ON (member.classid, member.objid) = (d.refclassid, d.refobjid) AND member.deptype = 'e'
        JOIN pg_extension AS e ON e.oid = member.refobjid AND e.extname = 'timescaledb'
        LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        LEFT JOIN pg_class AS c ON c.oid = r.ev_class
        LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
        WHERE 'plant'::regnamespace IN (c.relnamespace, p.pronamespace)
          AND pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid) NOT LIKE 'function %time_bucket(%'
        """
    )
    assert [tuple(row) for row in rows] == []
