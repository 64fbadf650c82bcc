"""4 Forensics: what happened, what was changed, and which signals are not to be believed."""

from __future__ import annotations

from dashboards.build.dashboard import Dashboard
from dashboards.build.options import (
    ANY_IS_ODD,
    BAD,
    COLOURED_TEXT,
    GOOD,
    INFO,
    WARN,
    Json,
    link,
    override,
    query_variable,
    steps,
    target,
    texts,
)
from dashboards.build.panels import Field, state_timeline, table, text, time_series
from dashboards.build.sql import load

_SQL = load("forensics")
_WHY = texts(
    {
        "0": ("no gap", "gray"),
        "1": ("backfilled", GOOD),
        "2": ("plantlog was off", "purple"),
        "3": ("no connection", BAD),
        "4": ("not read", WARN),
        "5": ("silent", INFO),
        "6": ("spool", "purple"),
        "7": ("another reason", WARN),
    }
)
_HOUR = "Of a longer time its last hour is looked at."


def dashboard() -> Dashboard:
    """The questions of ``plantlog ask``, about one unit."""
    made = Dashboard(
        4,
        "forensics",
        "Forensics",
        "What happened in a unit, what was changed, and which signals are not to be believed.",
        refresh="",
        variables=[query_variable("channels", "Unit", _SQL["patterns"])],
    )
    made.add(
        text(
            "How to use it",
            "Choose a unit and a time; drag in the chart to narrow it. These are the questions of `plantlog ask`, "
            "which has more of them, takes any channels, and prints CSV and JSON. They read samples: "
            "**of a longer time the last hour is looked at**.",
        ),
        24,
        3,
    )
    made.section("What happened")
    made.add(
        time_series(
            "What happened, by kind",
            f"Events, gaps, changes of states and quality, jumps: how many of each. {_HOUR}",
            [target(_SQL["changes_in_time"], form="time_series")],
            Field(low=0, decimals=0, color="palette-classic", empty="Nothing happened in this time"),
            style="bars",
            fill=80,
            stacked=True,
        ),
        24,
        6,
    )
    made.add(
        _table("Timeline", f"All of it, the latest first. {_HOUR}", "timeline", override("Detail", custom__width=620)),
        24,
        10,
    )
    made.add(
        _table(
            "Set points, modes and states that were changed",
            f"A set point is known by its behaviour: a value that is held, and changes now and then. {_HOUR}",
            "setpoints",
            override("Held before", unit="s"),
        ),
        24,
        7,
    )
    made.add(
        _table(
            "What behaves otherwise than before",
            "Mean and spread of the chosen time against as long a time right before it; the score is in spreads. "
            + _HOUR,
            "changed",
            override("Score", decimals=1, thresholds=steps((None, GOOD), (3, WARN), (10, BAD)),
                     custom__cellOptions=COLOURED_TEXT),
        ),
        24,
        8,
    )  # fmt: skip
    made.section("Which signals are not to be believed")
    made.add(
        _table(
            "Stuck sensors",
            f"One value for much longer than the sensor ever keeps one. {_HOUR}",
            "stuck",
            override("Times the usual", decimals=0),
        ),
        24,
        6,
    )
    made.add(
        _table(
            "Replayed signals",
            f"A stretch that repeats an earlier one, exactly or scaled: noise never does that. {_HOUR}",
            "replayed",
        ),
        24,
        6,
    )
    made.section("What is missing")
    made.add(
        state_timeline(
            "Gaps by channel",
            "Where samples are missing and why; the whole chosen time.",
            [target(_SQL["gap_states"])],
            Field(mappings=_WHY),
        ),
        24,
        12,
    )
    made.add(
        _table(
            "Coverage",
            f"What each channel has and lacks, and silences that nobody recorded. {_HOUR}",
            "coverage",
            override("Covered", unit="percent", decimals=1, thresholds=steps((None, BAD), (90, WARN), (99.9, GOOD)),
                     custom__cellOptions=COLOURED_TEXT),
            override("Missing", unit="s"),
            override("Longest", unit="s"),
            override("Backfilled", unit="s"),
            override("Unrecorded silences", thresholds=ANY_IS_ODD, custom__cellOptions=COLOURED_TEXT),
        ),
        24,
        10,
    )  # fmt: skip
    return made


def _table(title: str, description: str, query: str, *overrides: Json) -> Json:
    opened = link("Open the channel", "plantlog-channel", {"unit": "path", "channel": "Channel"})
    columns = [override("Channel", links=[opened]), override("path", custom__hidden=True)]
    of = Field(overrides=[*columns, *overrides])
    return table(title, description, [target(_SQL[query])], of)
