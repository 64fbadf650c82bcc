"""The processes of an appliance: their names, their ports, and which collector reads which source.

A process of Python uses one core. Where one is not enough for the sources of a protocol, ``[collectors] processes`` of
them share the sources, and the spool of the protocol: all that is known of a source is there, whoever reads it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from ingest.config.model import HealthOptions, ModbusSource, OpcuaSource, Plant, PushSource, Source, SourceKind

PORTS = {
    "collector-opcua": 0,
    "collector-modbus": 1,
    "writer": 2,
    "collector-push": 3,
    "maintenance": 4,
    "viewer": 5,
    "notifier": 6,
}  # behind [health].port
_FURTHER = 20  # likewise, of the second collector of a protocol; that of the third is two behind it
_UNEVEN = 1.25  # the busiest process may have so much more than its share before a source moves to another one


def collector(kind: SourceKind, number: int = 1) -> str:
    """The name of a collector; the first of a protocol has none but the protocol's."""
    return f"collector-{kind}" if number == 1 else f"collector-{kind}-{number}"


def first_of(process: str) -> str:
    """The name without a number."""
    return process.rstrip("0123456789").removesuffix("-")


def port(process: str, options: HealthOptions) -> int:
    """Where a process answers ``/health`` and ``/metrics``."""
    first = first_of(process)
    if process == first:
        return options.port + PORTS[process]
    return options.port + _FURTHER + PORTS[first] + 2 * (int(process.removeprefix(f"{first}-")) - 2)


def collectors(plant: Plant, kind: SourceKind) -> list[str]:
    """The processes that read the sources of one kind."""
    return [collector(kind, 1 + number) for number in range(_count(plant, kind))]


def _count(plant: Plant, kind: SourceKind) -> int:
    ends = len({_end(source) for source in plant.sources if source.kind == kind})
    return min(ends, 1 if kind == "push" else plant.collectors.processes)


def split(plant: Plant, before: Mapping[str, int]) -> dict[str, int]:
    """Source's name → the number, from 1, of the process that reads it.

    ``before``: as it was. Who had a source keeps it, unless it has too much or is no more: sources move until none has.
    Modbus sources with one address share one connection, so that they stay together.
    """
    found: dict[str, int] = {}
    for kind in ("opcua", "modbus", "push"):
        loads: defaultdict[str, float] = defaultdict(float)
        was: dict[str, int] = {}
        for source in plant.sources:
            if source.kind == kind:
                loads[_end(source)] += _load(source)
                if source.name in before:
                    was.setdefault(_end(source), before[source.name])
        at = _split(loads, _count(plant, kind), was)
        found |= {source.name: at[_end(source)] for source in plant.sources if source.kind == kind}
    return found


def _split(loads: Mapping[str, float], processes: int, before: Mapping[str, int]) -> dict[str, int]:
    """End point → process."""
    at = {end: before[end] for end in loads if 1 <= before.get(end, 0) <= processes}
    busy = dict.fromkeys(range(1, processes + 1), 0.0)
    for end, number in at.items():
        busy[number] += loads[end]
    for end in sorted(loads.keys() - at.keys(), key=lambda end: (-loads[end], end)):
        at[end] = min(busy, key=lambda number: (busy[number], number))
        busy[at[end]] += loads[end]
    while move := _move(loads, at, busy):
        end, number = move
        busy[at[end]] -= loads[end]
        busy[number] += loads[end]
        at[end] = number
    return at


def _move(loads: Mapping[str, float], at: Mapping[str, int], busy: Mapping[int, float]) -> tuple[str, int] | None:
    """What goes from the busiest process to the idlest one; None: it is even enough, or no move makes it so."""
    if len(busy) < 2:
        return None
    to = min(busy, key=lambda number: (busy[number], number))
    has = Counter(at.values())
    idle = not has[to]
    of = max((number for number in busy if not idle or has[number] > 1), key=lambda number: (busy[number], -number))
    share = max(sum(busy.values()) / len(busy), *loads.values())
    if not idle and busy[of] <= _UNEVEN * share:
        return None
    fitting = {end: max(busy[of] - loads[end], busy[to] + loads[end]) for end, number in at.items() if number == of}
    best = min(fitting, key=lambda end: (fitting[end], loads[end], end))
    return (best, to) if idle or fitting[best] < busy[of] * (1 - 1e-9) else None


def _end(source: Source) -> str:
    """What one process alone may read."""
    return source.address if isinstance(source, ModbusSource) else source.name


def _load(source: Source) -> float:
    """Values a second, and something for the connection."""
    match source:
        case OpcuaSource():
            usual = source.sampling_interval or source.publishing_interval
        case ModbusSource():
            usual = source.poll_interval
        case PushSource():
            return 1.0
    return 1.0 + sum(1 / (tag.interval or usual) for tag in source.tags)
