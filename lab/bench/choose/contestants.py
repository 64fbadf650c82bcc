"""The contestants by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from core.errors import OperationError
from lab.bench.choose.adapters.clickhouse import ClickHouse
from lab.bench.choose.adapters.duckdb import DuckDb
from lab.bench.choose.adapters.influxdb import InfluxDb
from lab.bench.choose.adapters.installed import folders_of
from lab.bench.choose.adapters.iotdb import IoTDb
from lab.bench.choose.adapters.plantlog import Plantlog
from lab.bench.choose.adapters.postgresql import PostgreSql
from lab.bench.choose.adapters.questdb import QuestDb
from lab.bench.choose.adapters.victoriametrics import VictoriaMetrics
from lab.bench.choose.contestant import Contestant

ALL: Mapping[str, Callable[[Path | None], Contestant]] = {
    "plantlog-rows": lambda folder: Plantlog("rows"),
    "plantlog-packed": lambda folder: Plantlog("packed"),
    "plantlog-columnstore": lambda folder: Plantlog("columnstore"),
    "plantlog-copy": lambda folder: Plantlog("rows", spooled=False),
    "postgresql": PostgreSql,
    "influxdb": InfluxDb,
    "victoriametrics": VictoriaMetrics,
    "questdb": QuestDb,
    "iotdb": IoTDb,
    "clickhouse": ClickHouse,
    "duckdb": DuckDb,
}


def contestants(where: Path | None, only: str) -> dict[str, Contestant]:
    """Those that ``only`` names (comma separated; '': all), available or not. Raises OperationError, ConfigError."""
    names = [name.strip() for name in only.split(",") if name.strip()] or list(ALL)
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise OperationError(f"--only: unknown contestants {', '.join(unknown)}; legal: {', '.join(ALL)}")
    folders = folders_of(where, tuple(ALL))
    return {name: ALL[name](folders.get(name)) for name in names}
