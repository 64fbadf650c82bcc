"""3 Channel: one channel in full."""

from __future__ import annotations

from dashboards.build.dashboard import Dashboard
from dashboards.build.health import GAP_STATES
from dashboards.build.options import (
    BAD,
    COLOURED_TEXT,
    GOOD,
    INFO,
    QUIET,
    WARN,
    Json,
    annotation,
    custom_variable,
    override,
    query_variable,
    steps,
    target,
    texts,
)
from dashboards.build.panels import Field, bar_chart, stat, state_timeline, table, time_series, with_unit_of
from dashboards.build.plant import ALARM_STATE
from dashboards.build.sql import load

_SQL = load("channel")
_QUALITY = texts(
    {
        "good": ("good", GOOD),
        "held": ("held", "gray"),
        "partly good": ("partly good", WARN),
        "bad": ("bad", BAD),
        "missing": ("missing", "purple"),
    }
)
_COMPARE = (
    ("an hour earlier", "3600"),
    ("a day earlier", "86400"),
    ("a week earlier", "604800"),
    ("10 minutes earlier", "600"),
)
_UNIT = target(_SQL["unit"], "Unit")
_BAND = {"fill": "dash", "dash": [6, 4]}


def dashboard() -> Dashboard:
    """The chosen channel."""
    made = Dashboard(
        3,
        "channel",
        "Channel",
        "One channel: its curve with gaps as gaps, quality, distribution, and another time beside it.",
        variables=[
            query_variable("unit", "Unit", _SQL["units"]),
            query_variable("channel", "Channel", _SQL["channels"]),
            custom_variable("compare", "Compare with", _COMPARE),
        ],
        annotations=[
            annotation("Gaps", BAD, _SQL["gap_bands"]),
            annotation("Changes", WARN, _SQL["changes"]),
        ],
    )
    _numbers(made)
    made.add(
        _with_unit(
            time_series(
                "Curve",
                "Mean, and from the lowest to the highest value of each step. A line ends where something is missing; "
                "a band says why. Drag to zoom: a step of a second or less shows every sample.",
                [target(_SQL["curve"], form="time_series"), _UNIT],
                Field(
                    color="palette-classic",
                    empty="No samples. A channel of texts has none: its texts are below, and in Events",
                    overrides=[
                        override("lowest", custom__lineWidth=0, color=_fixed(INFO), custom__hideFrom=_HIDE_LEGEND),
                        override(
                            "highest",
                            custom__lineWidth=0,
                            custom__fillBelowTo="lowest",
                            custom__fillOpacity=18,
                            color=_fixed(INFO),
                            custom__hideFrom=_HIDE_LEGEND,
                        ),
                        override("mean", color=_fixed(INFO), custom__lineWidth=1.5),
                    ],
                ),
            )
        ),
        24,
        10,
    )
    made.add(
        state_timeline(
            "Quality, or texts",
            "Good: all samples of the step are. Held: none, but the last one holds. Missing: a gap, or nothing yet. "
            "A channel of texts shows which one held when.",
            [target(_SQL["quality"])],
            Field(mappings=_QUALITY, empty="No text yet"),
        ),
        24,
        3,
    )
    made.add(
        _with_unit(
            time_series(
                "Compared with ${compare:text}",
                "The chosen time, and the same length of time so much earlier, laid over each other.",
                [
                    target(_SQL["now_beside"], "A", "time_series"),
                    target(_SQL["earlier"], "B", "time_series"),
                    _UNIT,
                ],
                Field(
                    color="palette-classic",
                    empty="No samples in either time",
                    overrides=[
                        override("this time", color=_fixed(INFO)),
                        override("earlier", color=_fixed(WARN), custom__lineStyle=_BAND),
                    ],
                ),
            )
        ),
        14,
        8,
    )
    made.add(
        bar_chart(
            "Distribution",
            "How much of the time each class of values takes; of a long time these are means of steps.",
            [target(_SQL["distribution"])],
            Field("percent", color=INFO, low=0, empty="No samples in this time"),
            "Value",
        ),
        10,
        8,
    )
    made.section("What is missing, and what happened")
    made.add(
        table(
            "Gaps",
            "Intervals without samples in the chosen time, the latest first.",
            [target(_SQL["gaps"])],
            Field(
                overrides=[
                    override("Length", unit="s"),
                    override("State", mappings=GAP_STATES, custom__cellOptions=COLOURED_TEXT),
                ],
            ),
        ),
        12,
        8,
    )
    made.add(
        table(
            "Events",
            "Of this channel, the latest first.",
            [target(_SQL["events"])],
            Field(),
        ),
        12,
        8,
    )
    made.add(
        table(
            "Alarm limits",
            "As the tag list has them, and how each alarm stands. Rate: units a second; stale: seconds.",
            [target(_SQL["alarms"])],
            Field(empty="It has no alarm limits", overrides=[ALARM_STATE]),
        ),
        24,
        6,
    )
    made.add(
        table(
            "What it is",
            "As the tag list says it.",
            [target(_SQL["facts"])],
            Field(overrides=[override("Expected every", unit="s")]),
        ),
        24,
        4,
    )
    return made


def _numbers(made: Dashboard) -> None:
    made.add(
        stat(
            "Newest value",
            "The newest value or text before the end of the chosen time; the range is the tag list's.",
            [target(_SQL["now"])],
            Field(color=INFO, empty="none yet", overrides=[override("Of its range", noValue="no range")]),
            texts=True,
        ),
        6,
        4,
    )
    made.add(
        _with_unit(
            stat(
                "Of the chosen time",
                "Lowest, mean and highest value.",
                [target(_SQL["figures"]), _UNIT],
                Field(color=QUIET, empty="none"),
            )
        ),
        8,
        4,
    )
    made.add(
        stat(
            "Samples",
            "How many there are in the chosen time, and how many of them are not Bad.",
            [target(_SQL["counted"])],
            Field(
                "short",
                color=QUIET,
                empty="none",
                overrides=[
                    override(
                        "Good",
                        unit="percent",
                        decimals=1,
                        thresholds=steps((None, BAD), (90, WARN), (99.9, GOOD)),
                        color={"mode": "thresholds"},
                    )
                ],
            ),
        ),
        6,
        4,
    )
    made.add(
        stat(
            "Covered",
            "How much of the chosen time has no gap, or one that was backfilled.",
            [target(_SQL["covered"])],
            Field("percent", decimals=1, thresholds=steps((None, BAD), (90, WARN), (99.9, GOOD)), empty="none"),
        ),
        4,
        4,
    )


_HIDE_LEGEND: Json = {"legend": True, "tooltip": False, "viz": False}


def _fixed(color: str) -> Json:
    return {"mode": "fixed", "fixedColor": color}


def _with_unit(panel: Json) -> Json:
    return with_unit_of(panel, "Unit", (("unit", "unit"),))
