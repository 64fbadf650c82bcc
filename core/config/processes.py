"""The processes of an appliance: names, ports, and the assignment of sources to collectors.

A Python process uses one core. If one is not enough for the sources of a protocol, ``[collectors] processes``
processes share the sources and the spool, which holds the state of every source, whichever process reads it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from core.config import modbus_address
from core.config.model import HealthOptions, Plant
from core.config.sources import ModbusSource, OpcuaSource, PushSource, Source, SourceKind

PORTS = {
    "collector-opcua": 0,
    "collector-modbus": 1,
    "writer": 2,
    "collector-push": 3,
    "maintenance": 4,
    "viewer": 5,
    "notifier": 6,
}  # behind [health].port
_EXTRA_PORTS = 20  # likewise, of the second collector of a protocol; that of the third is two behind it
_MAX_IMBALANCE = 1.25  # the busiest process may have so much more than its share before a source moves to another one


def collector(kind: SourceKind, number: int = 1) -> str:
    """The name of a collector; the first of a protocol has none but the protocol's."""
    return f"collector-{kind}" if number == 1 else f"collector-{kind}-{number}"


def is_collector(process: str) -> bool:
    """Whether a process reads sources."""
    return process.startswith("collector-")


def base_name(process: str) -> str:
    """The name without a number."""
    return process.rstrip("0123456789").removesuffix("-")


def port(process: str, options: HealthOptions) -> int:
    """The port of ``/health`` and ``/metrics`` of a process."""
    first = base_name(process)
    if process == first:
        return options.port + PORTS[process]
    return options.port + _EXTRA_PORTS + PORTS[first] + 2 * (int(process.removeprefix(f"{first}-")) - 2)


def collectors(plant: Plant, kind: SourceKind) -> list[str]:
    """The processes that read the sources of one kind."""
    return [collector(kind, 1 + number) for number in range(_count(plant, kind))]


def _count(plant: Plant, kind: SourceKind) -> int:
    ends = len({_endpoint(source) for source in plant.sources if source.kind == kind})
    return min(ends, 1 if kind == "push" else plant.collectors.processes)


def split(plant: Plant, before: Mapping[str, int]) -> dict[str, int]:
    """Assignment of sources to processes: source name → process number, from 1.

    ``before``: the previous assignment. Sources move only from overloaded or removed processes.
    Modbus sources with one address share one connection, so that they stay together.
    """
    places: dict[str, int] = {}
    for kind in ("opcua", "modbus", "push"):
        loads: defaultdict[str, float] = defaultdict(float)
        was: dict[str, int] = {}
        for source in plant.sources:
            if source.kind == kind:
                loads[_endpoint(source)] += _load(source)
                if source.name in before:
                    was.setdefault(_endpoint(source), before[source.name])
        at = _split(loads, _count(plant, kind), was)
        places |= {source.name: at[_endpoint(source)] for source in plant.sources if source.kind == kind}
    return places


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
    """The best move from the busiest to the least busy process; None: balanced enough, or no move helps."""
    if len(busy) < 2:
        return None
    to = min(busy, key=lambda number: (busy[number], number))
    has = Counter(at.values())
    idle = not has[to]
    of = max((number for number in busy if not idle or has[number] > 1), key=lambda number: (busy[number], -number))
    share = max(sum(busy.values()) / len(busy), *loads.values())
    if not idle and busy[of] <= _MAX_IMBALANCE * share:
        return None
    fitting = {end: max(busy[of] - loads[end], busy[to] + loads[end]) for end, number in at.items() if number == of}
    best = min(fitting, key=lambda end: (fitting[end], loads[end], end))
    return (best, to) if idle or fitting[best] < busy[of] * (1 - 1e-9) else None


def _endpoint(source: Source) -> str:
    """The endpoint, which only one process may read."""
    return modbus_address.parse(source.address).endpoint if isinstance(source, ModbusSource) else source.name


def _load(source: Source) -> float:
    """Estimated load: values per second, plus one for the connection."""
    match source:
        case OpcuaSource():
            usual = source.sampling_interval or source.publishing_interval
        case ModbusSource():
            usual = source.poll_interval
        case PushSource():
            return 1.0
    return 1.0 + sum(1 / (tag.interval or usual) for tag in source.tags)
