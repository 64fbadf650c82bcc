"""A dashboard: panels flow from left to right on Grafana's 24 columns, in sections with a heading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dashboards.build.options import Json

_COLUMNS = 24
_SCHEMA_VERSION = 39  # of Grafana 11.0; later ones bring it up when they load it


@dataclass
class Dashboard:
    """One file. ``level`` is its number in the drill-down."""

    level: int
    name: str
    title: str
    description: str
    since: str = "now-1h"
    refresh: str = "10s"
    variables: Sequence[Json] = ()
    annotations: Sequence[Json] = ()
    _panels: list[Json] = field(default_factory=list)
    _x: int = 0
    _y: int = 0
    _height: int = 0  # of the line that is being filled

    @property
    def uid(self) -> str:
        """What links name it by."""
        return f"plantlog-{self.name}"

    @property
    def file_name(self) -> str:
        """Its file, numbered by drill-down."""
        return f"{self.level}-{self.name}.json"

    def section(self, title: str) -> None:
        """Begin a heading."""
        self._new_line()
        self._place({"type": "row", "title": title, "collapsed": False, "panels": []}, _COLUMNS, 1)

    def add(self, panel: Json, width: int, height: int) -> None:
        """Put a panel right of the last one, or on the next line."""
        if self._x + width > _COLUMNS:
            self._new_line()
        self._place(panel, width, height)

    def _place(self, panel: Json, width: int, height: int) -> None:
        place = {"x": self._x, "y": self._y, "w": width, "h": height}
        self._panels.append({"id": len(self._panels) + 1, **panel, "gridPos": place})
        self._x += width
        self._height = max(self._height, height)

    def _new_line(self) -> None:
        self._x, self._y, self._height = 0, self._y + self._height, 0

    def json(self) -> Json:
        """As Grafana 11 reads it from a file."""
        navigation = {
            "type": "dashboards",
            "title": "plantlog",
            "tags": ["plantlog"],
            "asDropdown": True,
            "includeVars": True,
            "keepTime": True,
            "targetBlank": False,
            "icon": "external link",
            "tooltip": "",
            "url": "",
        }
        built_in = {
            "builtIn": 1,
            "datasource": {"type": "grafana", "uid": "-- Grafana --"},
            "enable": True,
            "hide": True,
            "iconColor": "rgba(0, 211, 255, 1)",
            "name": "Annotations & Alerts",
            "type": "dashboard",
        }
        return {
            "uid": self.uid,
            "title": f"{self.level} {self.title}",
            "description": self.description,
            "tags": ["plantlog"],
            "schemaVersion": _SCHEMA_VERSION,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,  # one cross-hair in all panels
            "fiscalYearStartMonth": 0,
            "liveNow": False,
            "timezone": "browser",
            "weekStart": "",
            "time": {"from": self.since, "to": "now"},
            "timepicker": {"refresh_intervals": ["5s", "10s", "30s", "1m", "5m"]},
            "refresh": self.refresh,
            "links": [navigation],
            "annotations": {"list": [built_in, *self.annotations]},
            "templating": {"list": list(self.variables)},
            "panels": self._panels,
        }
