"""2 Unit: all channels of one unit of the plant."""

from __future__ import annotations

from dashboards.build.dashboard import Dashboard
from dashboards.build.options import (
    ANY_IS_BAD,
    ANY_IS_ODD,
    BAD,
    COLOURED_TEXT,
    GOOD,
    INFO,
    WARN,
    annotation,
    link,
    override,
    query_variable,
    target,
    texts,
)
from dashboards.build.panels import Field, repeated, stat, state_timeline, table, time_series
from dashboards.build.sql import load

_SQL = load("unit")
_STATES = texts({"-1": ("missing", BAD), "0": ("0", "gray"), "1": ("1", GOOD), "2": ("2", INFO), "3": ("3", WARN)})
_QUALITIES = texts({"good": ("good", GOOD), "uncertain": ("uncertain", WARN), "bad": ("bad", BAD)})
_TO_CHANNEL = link("Open the channel", "plantlog-channel", {"unit": "path", "channel": "name"})
_HIDDEN = (override("name", custom__hidden=True), override("path", custom__hidden=True))


def dashboard() -> Dashboard:
    """The chosen unit."""
    made = Dashboard(
        2,
        "unit",
        "Unit",
        "All channels of one unit: what they are, and how they went.",
        variables=[
            query_variable("unit", "Unit", _SQL["units"]),
            query_variable("measure", "Unit of measure", _SQL["measures"], multi=True, every=True, hide=2),
        ],
        annotations=[annotation("Gaps", BAD, _SQL["gap_bands"])],
    )
    made.add(
        stat(
            "Channels",
            "Those of this unit that the configuration names now, and how many of them have an open gap.",
            [target(_SQL["summary"])],
            Field(decimals=0, overrides=[override("Without data now", thresholds=ANY_IS_BAD)]),
        ),
        8,
        3,
    )
    made.add(
        stat(
            "What is missing of this time",
            "Outages: stretches of time in which something of the unit was missing and was not backfilled; "
            "and how long, added up over all channels.",
            [target(_SQL["gaps"])],
            Field(thresholds=ANY_IS_ODD, overrides=[override("Missing, all channels", unit="s")]),
        ),
        8,
        3,
    )
    made.add(
        stat(
            "Alarms",
            "Of its channels: beyond a limit now, and not acknowledged.",
            [target(_SQL["alarms"])],
            Field(thresholds=ANY_IS_ODD, decimals=0),
        ),
        8,
        3,
    )
    made.section("How it went")
    curves = time_series(
        "${measure}",
        "Means of the first 12 analog channels with this unit of measure. A line ends where something is missing; "
        "bands are gaps of the whole source. Channels that report changes only hold their value.",
        [target(_SQL["curves"], form="time_series")],
        Field("none", color="palette-classic", empty="No samples of this unit of measure in this time"),
    )
    made.add(repeated(curves, "measure", 2), 12, 8)
    made.add(
        state_timeline(
            "States",
            "The first 16 discrete channels; missing: there is a gap, or the last sample was Bad.",
            [target(_SQL["states"])],
            Field(mappings=_STATES, empty="This unit has no discrete channels"),
        ),
        24,
        6,
    )
    made.section("Channels")
    made.add(
        table(
            "Values",
            "The newest value before the end of the chosen time, and since when it holds. 200 channels at most. "
            "Quality is that of the sample, or the reason of an open gap.",
            [target(_SQL["channels"])],
            Field(
                overrides=[
                    override("Channel", links=[_TO_CHANNEL]),
                    *_HIDDEN,
                    override("Value", custom__align="right"),
                    override("Of its range", unit="percent", decimals=0, min=0, max=100),
                    override("Quality", mappings=_QUALITIES, custom__cellOptions=COLOURED_TEXT),
                ]
            ),
        ),
        24,
        12,
    )
    made.add(
        table(
            "Events of its channels",
            "Texts, changes of quality, conflicts, alarms; the latest first.",
            [target(_SQL["events"])],
            Field(
                overrides=[override("Channel", links=[_TO_CHANNEL]), *_HIDDEN],
            ),
        ),
        24,
        9,
    )
    return made
