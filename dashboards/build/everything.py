"""All dashboards, as files."""

from __future__ import annotations

import json

from dashboards.build import channel, forensics, health, plant, storage, unit
from dashboards.build.dashboard import Dashboard


def dashboards() -> list[Dashboard]:
    """By drill-down."""
    return [module.dashboard() for module in (health, plant, unit, channel, forensics, storage)]


def files() -> dict[str, str]:
    """File name → content."""
    return {one.file_name: json.dumps(one.json(), indent=2, ensure_ascii=False) + "\n" for one in dashboards()}
