"""1 Plant overview: which units have data, which have not, and how they stand."""

from __future__ import annotations

from dashboards.build.dashboard import Dashboard
from dashboards.build.options import (
    ANY_IS_BAD,
    ANY_IS_ODD,
    BAD,
    COLOURED_CELL,
    COLOURED_TEXT,
    GOOD,
    INFO,
    QUIET,
    WARN,
    link,
    override,
    query_variable,
    target,
    texts,
)
from dashboards.build.panels import Field, bar_gauge, stat, table, time_series
from dashboards.build.sql import load

_SQL = load("plant")
_STATES = texts(
    {
        "good": ("good", GOOD),
        "warning": ("warning", WARN),
        "partly": ("partly", WARN),
        "no data": ("no data", "purple"),
        "alarm": ("alarm", BAD),
    }
)
_PRIORITIES = texts(
    {"critical": ("critical", BAD), "high": ("high", BAD), "medium": ("medium", WARN), "low": ("low", INFO)}
)
# ISA-18.2's states, in words
_ALARM_STATES = texts(
    {
        "normal": ("normal", GOOD),
        "unacknowledged_active": ("active, not acknowledged", BAD),
        "acknowledged_active": ("active, acknowledged", WARN),
        "return_to_normal_unacknowledged": ("returned, not acknowledged", INFO),
        "latched_unacknowledged": ("latched, not acknowledged", WARN),
        "shelved": ("shelved", QUIET),
        "suppressed_by_design": ("suppressed by design", QUIET),
        "out_of_service": ("out of service", QUIET),
    }
)
ALARM_STATE = override("State", mappings=_ALARM_STATES, custom__cellOptions=COLOURED_TEXT, custom__width=210)
_TO_CHANNEL = link("Open the channel", "plantlog-channel", {"unit": "path", "channel": "Channel"})
_OF_CHANNEL = (override("Channel", links=[_TO_CHANNEL]), override("path", custom__hidden=True))
TO_UNIT = link("Open the unit", "plantlog-unit", {"unit": "Unit"})


def dashboard() -> Dashboard:
    """All units of the chosen areas."""
    made = Dashboard(
        1,
        "plant",
        "Plant",
        "All units: which have data and which have not, and their first values on their ranges.",
        variables=[query_variable("area", "Area", _SQL["areas"], multi=True, every=True)],
    )
    made.add(
        stat("Size", "Channels that the configuration names now, and the units that they belong to.",
             [target(_SQL["channels"])], Field(decimals=0)),
        6,
        3,
    )  # fmt: skip
    made.add(
        stat(
            "Channels without data now",
            "Those with an open gap, of their own or of their source.",
            [target(_SQL["missing_now"])],
            Field(thresholds=ANY_IS_BAD, decimals=0),
        ),
        6,
        3,
    )
    made.add(
        stat(
            "Alarms",
            "Beyond a limit now; urgent: of priority high or critical. Not acknowledged: also those that returned.",
            [target(_SQL["alarms_now"])],
            Field(
                decimals=0,
                thresholds=ANY_IS_ODD,
                overrides=[override("Urgent", thresholds=ANY_IS_BAD)],
            ),
        ),
        12,
        3,
    )
    made.section("Units")
    made.add(
        table(
            "Units",
            "A unit is a channel's name without its last part. No data: all its channels have an open gap. "
            "Outages are stretches of the chosen time in which something of the unit was missing.",
            [target(_SQL["units"])],
            Field(
                overrides=[
                    override("Unit", links=[TO_UNIT]),
                    override("State", mappings=_STATES, custom__cellOptions=COLOURED_CELL, custom__width=80),
                    override("Alarms", thresholds=ANY_IS_ODD, custom__cellOptions=COLOURED_TEXT),
                    override("Without data", thresholds=ANY_IS_BAD, custom__cellOptions=COLOURED_TEXT),
                    override("Outages", thresholds=ANY_IS_ODD, custom__cellOptions=COLOURED_TEXT),
                ]
            ),
        ),
        24,
        12,
    )
    made.add(
        bar_gauge(
            "First value of each unit, of its range",
            "The first analog channel with a range of each unit, in the order of the tag list; "
            "not older than 15 minutes. 60 units at most.",
            [target(_SQL["key_values"])],
            Field("percent", low=0, high=100, decimals=0, color=INFO),
        ),
        24,
        12,
    )
    made.section("Alarms")
    made.add(
        table(
            "Alarms to look at",
            "Beyond their limit or not acknowledged, the most urgent first. At: the limit, in the channel's unit; "
            "of rate in units a second, of stale in seconds.",
            [target(_SQL["alarms"])],
            Field(
                empty="None now",
                overrides=[
                    *_OF_CHANNEL,
                    override("Priority", mappings=_PRIORITIES, custom__cellOptions=COLOURED_CELL),
                    ALARM_STATE,
                ],
            ),
        ),
        24,
        8,
    )
    made.add(
        time_series(
            "Changes of alarms, by area",
            "How often alarms changed their state, from counts by the minute: a flood stands out.",
            [target(_SQL["alarm_rate"], form="time_series")],
            Field(low=0, decimals=0, color="palette-classic", empty="No alarm changed in this time"),
            style="bars",
            fill=80,
            stacked=True,
        ),
        24,
        7,
    )
    made.add(
        table(
            "Shelved, suppressed, out of service",
            "Alarms that nobody is told of now, by whom and why.",
            [target(_SQL["inhibited"])],
            Field(
                empty="None now",
                overrides=[
                    *_OF_CHANNEL,
                    ALARM_STATE,
                ],
            ),
        ),
        24,
        6,
    )
    return made
