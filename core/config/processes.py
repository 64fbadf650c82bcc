"""The processes of an appliance: names, ports, and the assignment of sources to collectors.

A Python process uses one core. If one is not enough for the sources of a protocol, ``[collectors] processes``
processes share the sources and the spool, which holds the state of every source, whichever process reads it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from core.config.addresses import modbus_address
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
}  # offsets from [health].port
_EXTRA_PORTS = 20  # offset of the second collectors of the protocols; the third ones have two more
_MAX_IMBALANCE = 1.25  # of the share of a process: beyond it, a source moves from the busiest process


def collector(kind: SourceKind, number: int = 1) -> str:
    """The name of a collector. That of the first one of a protocol has no number."""
    return f"collector-{kind}" if number == 1 else f"collector-{kind}-{number}"


def is_collector(process: str) -> bool:
    """Return whether a process reads sources."""
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


def processes_of(plant: Plant) -> list[str]:
    """The plantlog processes that a plant needs, in start order."""
    return [
        "writer",
        *collectors(plant, "opcua"),
        *collectors(plant, "modbus"),
        *collectors(plant, "push"),
        "maintenance",
        *(["notifier"] if plant.notify is not None else []),
        "viewer",
    ]


def _count(plant: Plant, kind: SourceKind) -> int:
    endpoints = len({_endpoint(source) for source in plant.sources if source.kind == kind})
    return min(endpoints, 1 if kind == "push" else plant.collectors.processes)


def split(plant: Plant, before: Mapping[str, int]) -> dict[str, int]:
    """Assignment of sources to processes: source name → process number, from 1.

    ``before``: the previous assignment. Sources move only from overloaded or removed processes.
    Modbus sources with one address share one connection, so that they stay together.
    """
    assignment: dict[str, int] = {}
    for kind in ("opcua", "modbus", "push"):
        loads: defaultdict[str, float] = defaultdict(float)
        previous: dict[str, int] = {}
        for source in plant.sources:
            if source.kind == kind:
                loads[_endpoint(source)] += _load(source)
                if source.name in before:
                    previous.setdefault(_endpoint(source), before[source.name])
        processes = _split(loads, _count(plant, kind), previous)
        assignment |= {source.name: processes[_endpoint(source)] for source in plant.sources if source.kind == kind}
    return assignment


def _split(loads: Mapping[str, float], processes: int, before: Mapping[str, int]) -> dict[str, int]:
    """Endpoint → process. ``loads``: load of each endpoint; ``before``: the assignment before."""
    assignment = {endpoint: before[endpoint] for endpoint in loads if 1 <= before.get(endpoint, 0) <= processes}
    totals = dict.fromkeys(range(1, processes + 1), 0.0)  # load of each process
    for endpoint, process in assignment.items():
        totals[process] += loads[endpoint]
    for endpoint in sorted(loads.keys() - assignment.keys(), key=lambda endpoint: (-loads[endpoint], endpoint)):
        assignment[endpoint] = min(totals, key=lambda process: (totals[process], process))
        totals[assignment[endpoint]] += loads[endpoint]
    while move := _move(loads, assignment, totals):
        endpoint, process = move
        totals[assignment[endpoint]] -= loads[endpoint]
        totals[process] += loads[endpoint]
        assignment[endpoint] = process
    return assignment


def _move(
    loads: Mapping[str, float], assignment: Mapping[str, int], totals: Mapping[int, float]
) -> tuple[str, int] | None:
    """The best move from the busiest to the least busy process; None: balanced enough, or no move helps."""
    if len(totals) < 2:
        return None
    target = min(totals, key=lambda process: (totals[process], process))
    endpoints = Counter(assignment.values())  # of each process
    is_idle = not endpoints[target]
    busiest = max(
        (process for process in totals if not is_idle or endpoints[process] > 1),
        key=lambda process: (totals[process], -process),
    )
    share = max(sum(totals.values()) / len(totals), *loads.values())
    if not is_idle and totals[busiest] <= _MAX_IMBALANCE * share:
        return None
    maxima = {  # load of the busier of the two after the move
        endpoint: max(totals[busiest] - loads[endpoint], totals[target] + loads[endpoint])
        for endpoint, process in assignment.items()
        if process == busiest
    }
    best = min(maxima, key=lambda endpoint: (maxima[endpoint], loads[endpoint], endpoint))
    return (best, target) if is_idle or maxima[best] < totals[busiest] * (1 - 1e-9) else None


def _endpoint(source: Source) -> str:
    """The endpoint of a source, which only one process may read."""
    return modbus_address.parse(source.address).endpoint if isinstance(source, ModbusSource) else source.name


def _load(source: Source) -> float:
    """Estimated load: values per second, plus one for the connection."""
    match source:
        case OpcuaSource():
            default = source.sampling_interval or source.publishing_interval
        case ModbusSource():
            default = source.poll_interval
        case PushSource():
            return 1.0
    return 1.0 + sum(1 / (tag.interval or default) for tag in source.tags)
