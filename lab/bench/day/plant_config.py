"""Configuration of the benchmark's plant: one push source, which the generator replaces."""

from __future__ import annotations

import csv
import secrets
from pathlib import Path

from core.config import token_file
from core.config.processes import PORTS as HEALTH_PORTS
from lab.bench.data import channel_names, channel_units

SOURCE = "day"
PORTS = 2 + len(HEALTH_PORTS)
_TOML = """[plant]
name = "day"

[health]
port = {health}

[viewer]
port = {viewer}

[push]
port = {push}

[retention.default]
raw = "1d"

[[source]]
name = "{source}"
kind = "push"
token_file = "token"
stale_after = "366d"
tags = "tags.csv"
"""


def configure(folder: Path, channels: int, port: int) -> Path:
    """Write ``plant.toml`` and what it names into ``folder``. ``port``: the first of :data:`PORTS`."""
    folder.mkdir(parents=True)
    token_file.write(folder / "token", secrets.token_urlsafe(24))
    with (folder / "tags.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("name", "address", "unit"))
        names = channel_names(channels)
        rows.writerows(zip(names, names, channel_units(channels), strict=True))
    config = folder / "plant.toml"
    config.write_text(_TOML.format(viewer=port, push=port + 1, health=port + 2, source=SOURCE))
    return config
