"""1 Plant overview: which units have data, which have not, and how they stand."""

from __future__ import annotations

from dashboards.build.dashboard import Dashboard
from dashboards.build.options import (
    ANY_IS_BAD,
    ANY_IS_ODD,
    BAD,
    GOOD,
    INFO,
    WARN,
    link,
    override,
    query_variable,
    target,
    texts,
)
from dashboards.build.panels import Field, bar_gauge, stat, table
from dashboards.build.sql import load

_SQL = load("plant")
_STATES = texts({"good": ("good", GOOD), "partly": ("partly", WARN), "no data": ("no data", BAD)})
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
        8,
        3,
    )  # fmt: skip
    made.add(
        stat(
            "Channels without data now",
            "Those with an open gap, of their own or of their source.",
            [target(_SQL["missing_now"])],
            Field(thresholds=ANY_IS_BAD, decimals=0),
        ),
        8,
        3,
    )
    made.section("Units")
    made.add(
        table(
            "Units",
            "A unit is a channel's name without its last part. No data: all its channels have an open gap. "
            "Gaps are those of the chosen time.",
            [target(_SQL["units"])],
            Field(
                overrides=[
                    override("Unit", links=[TO_UNIT]),
                    override("State", mappings=_STATES, custom__cellOptions={"type": "color-background"}),
                    override("Without data", thresholds=ANY_IS_BAD, custom__cellOptions={"type": "color-text"}),
                    override("Gaps", thresholds=ANY_IS_ODD, custom__cellOptions={"type": "color-text"}),
                ]
            ),
        ),
        14,
        15,
    )
    made.add(
        bar_gauge(
            "First value of each unit, of its range",
            "The first analog channel with a range of each unit, in the order of the tag list; "
            "not older than 15 minutes. 60 units at most.",
            [target(_SQL["key_values"])],
            Field("percent", low=0, high=100, decimals=0, color=INFO),
        ),
        10,
        15,
    )
    return made
