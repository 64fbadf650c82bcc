"""0 Appliance health: does everything arrive, how late, and what is in the way."""

from __future__ import annotations

from dashboards.build.dashboard import Dashboard
from dashboards.build.options import (
    ANY_IS_BAD,
    ANY_IS_ODD,
    BAD,
    COLOURED_TEXT,
    GOOD,
    INFO,
    QUIET,
    WARN,
    override,
    steps,
    target,
    texts,
)
from dashboards.build.panels import Field, stat, state_timeline, table, time_series
from dashboards.build.sql import load

_SQL = load("health")
_STATES = texts(
    {
        "3": ("connected", GOOD),
        "2": ("degraded", WARN),
        "1": ("connecting", INFO),
        "0": ("stopped", QUIET),
        "-1": ("disconnected", BAD),
    }
)
_STATE_NAMES = texts(
    {
        "connected": ("connected", GOOD),
        "degraded": ("degraded", WARN),
        "connecting": ("connecting", INFO),
        "starting": ("starting", INFO),
        "disconnected": ("disconnected", BAD),
        "stopped": ("stopped", QUIET),
    }
)
_OUTCOMES = texts(
    {"ok": ("ok", GOOD), "failed": ("failed", BAD), "skipped": ("skipped", QUIET), "runs": ("runs", INFO)}
)
_STRAIN = texts({"0": ("as usual", GOOD), "1": ("waits", WARN), "2": ("overloaded", BAD)})
_OVERLOADS = texts({"goes on": ("goes on", BAD), "over": ("over", GOOD)})
GAP_STATES = texts({"open": ("open", BAD), "closed": ("closed", WARN), "backfilled": ("backfilled", GOOD)})


def dashboard() -> Dashboard:
    """The whole appliance on one page."""
    made = Dashboard(0, "health", "Appliance health", "Whether everything arrives, how late, and what is in the way.")
    _numbers(made)
    _overload(made)
    made.section("What flows")
    rate = Field("suffix:/s", low=0, color="palette-classic")
    made.add(
        time_series(
            "Samples stored a second, by source",
            "Rows committed to the database, as ingest_batch has them. 0 where nothing was committed. "
            "At most the last day of the chosen time is read.",
            [target(_SQL["rate"], form="time_series")],
            rate,
            fill=12,
        ),
        12,
        8,
    )
    made.add(
        time_series(
            "Lag: from the newest source time to the commit",
            "Median of the batches of each step, by source. It holds sampling, network, spool and commit. A time later "
            "than its arrival counts as its arrival: Sources shows how far it is from the future.",
            [target(_SQL["lag"], form="time_series")],
            Field(
                "s", low=0, color="palette-classic", thresholds=steps((None, GOOD), (10, WARN), (60, BAD)), decimals=2
            ),
        ),
        12,
        8,
    )
    made.add(
        time_series(
            "Wait in the spool",
            "From received to committed. It grows while the database is away or slow.",
            [target(_SQL["wait"], form="time_series")],
            Field("s", low=0, color="palette-classic"),
            fill=8,
        ),
        12,
        7,
    )
    made.add(
        time_series(
            "Outages that began, by reason",
            "Intervals in which a source, or some of its channels, had no samples: one for all channels that miss it. "
            "README, What is missing, says what the reasons are.",
            [target(_SQL["gaps_begun"], form="time_series")],
            Field("none", low=0, color="palette-classic", decimals=0, empty="No outage began in this time"),
            style="bars",
            fill=80,
            stacked=True,
        ),
        12,
        7,
    )
    _tables(made)
    return made


def _numbers(made: Dashboard) -> None:
    late = steps((None, GOOD), (10, WARN), (60, BAD))
    numbers = (
        (
            "Stored",
            "Samples committed a second, over the last minute.",
            "rate_now",
            Field("suffix:/s", thresholds=steps((None, BAD), (0.01, QUIET))),
        ),
        (
            "Lag",
            "Median of the last minute, from the newest source time of a batch to its commit. From the future: how far "
            "the newest time is ahead of its arrival, where a clock or a tag is wrong; the lag does not count it.",
            "lag_now",
            Field("s", thresholds=late, empty="none", overrides=[override("From the future", thresholds=ANY_IS_ODD)]),
        ),
        (
            "Longest wait in the spool",
            "Of the last minute's batches, from received to committed.",
            "wait_now",
            Field("s", thresholds=late, empty="none"),
        ),
        (
            "Sources not connected",
            "Of those that the configuration names now.",
            "sources_up",
            Field(thresholds=ANY_IS_BAD, decimals=0),
        ),
        (
            "Without data now",
            "Channels with an open gap, of their own or of their source; and of how many sources they are.",
            "gaps_open",
            Field(thresholds=ANY_IS_ODD, decimals=0),
        ),
        (
            "In quarantine",
            "Samples, events and gaps that were kept out of the tables and not tried again: plantlog spool quarantine.",
            "quarantined",
            Field(thresholds=ANY_IS_ODD),
        ),
        ("Alarms", "Of the plant, active or not acknowledged.", "alarms_now", Field(thresholds=ANY_IS_ODD)),
        (
            "Room left",
            "Until disk or budget are full, at the growth of the last days; ten years at most.",
            "days_left",
            Field("d", thresholds=steps((None, BAD), (7, WARN), (30, GOOD)), empty="not known yet"),
        ),
    )
    for title, description, query, of in numbers:
        made.add(stat(title, description, [target(_SQL[query])], of), 6, 3)


def _overload(made: Dashboard) -> None:
    made.section("Overload")
    made.add(
        state_timeline(
            "Overload, and what waits for it",
            "Overloaded: samples reach the table late, or polls are late for want of a processor. Maintenance gives "
            "way then, rollups first, and when others want the processors; it makes up for it by itself.",
            [target(_SQL["overload_states"])],
            Field(mappings=_STRAIN),
        ),
        10,
        5,
    )
    made.add(
        table(
            "Overloads of this time",
            "With the worst that was measured: how long the oldest batch waited for the database, seconds between two "
            "polls of the source that was polled least often, the share of time in which somebody waited for a "
            "processor, and what the spools held. Of one that goes on, pressure and spools are those of its begin.",
            [target(_SQL["overloads"])],
            Field(
                empty="No overload in this time",
                overrides=[
                    override("State", mappings=_OVERLOADS, custom__cellOptions=COLOURED_TEXT),
                    *(override(name, unit="s", decimals=1) for name in ("Lasted", "Lag", "Polls every")),
                    override("CPU pressure", unit="percentunit", decimals=0),
                    override("Spools", unit="bytes"),
                ],
            ),
        ),
        14,
        5,
    )


def _tables(made: Dashboard) -> None:
    made.section("Sources")
    made.add(
        state_timeline(
            "State of the sources",
            "What each source's collector said. Degraded: connected, but some of its channels can't be read.",
            [target(_SQL["source_states"])],
            Field(mappings=_STATES),
        ),
        24,
        6,
    )
    made.add(
        table(
            "Sources",
            "As their collectors say now.",
            [target(_SQL["sources"])],
            Field(
                overrides=[
                    override("State", mappings=_STATE_NAMES, custom__cellOptions=COLOURED_TEXT),
                    override("Without data", thresholds=ANY_IS_ODD, custom__cellOptions=COLOURED_TEXT),
                    override("From the future", unit="s", thresholds=ANY_IS_ODD, custom__cellOptions=COLOURED_TEXT),
                    *(override(name, custom__width=240) for name in ("Reason", "Address")),
                ]
            ),
        ),
        24,
        7,
    )
    made.section("Maintenance")
    made.add(
        table(
            "Jobs",
            "The newest run of each job: rollups, compression, seals, retention, chunks ahead.",
            [target(_SQL["jobs"])],
            Field(
                overrides=[
                    override("Outcome", mappings=_OUTCOMES, custom__cellOptions=COLOURED_TEXT),
                    override("Took", unit="s"),
                    override("Bytes", unit="bytes"),
                    override("Failed today", thresholds=ANY_IS_BAD, custom__cellOptions=COLOURED_TEXT),
                ],
            ),
        ),
        24,
        9,
    )
    made.add(
        time_series(
            "What happened, by type",
            "Events, samples that were not Good, and what gateways count: added up by minute.",
            [target(_SQL["counted"], form="time_series")],
            Field(low=0, decimals=0, color="palette-classic", empty="Nothing happened in this time"),
            style="bars",
            fill=80,
            stacked=True,
        ),
        24,
        7,
    )
    made.section("What is missing, and what happened")
    made.add(
        table(
            "Gaps of this time",
            "Open ones first.",
            [target(_SQL["gaps_latest"])],
            Field(
                overrides=[
                    override("Length", unit="s"),
                    override("State", mappings=GAP_STATES, custom__cellOptions=COLOURED_TEXT),
                    override("Detail", custom__width=420),
                ],
            ),
        ),
        24,
        8,
    )
    made.add(
        table(
            "Events of this time",
            "Restarts, changes of states, conflicts, clock skew and the like; not the texts of channels.",
            [target(_SQL["events_latest"])],
            Field(overrides=[override("Text", custom__width=280), override("Detail", custom__width=560)]),
        ),
        24,
        8,
    )
