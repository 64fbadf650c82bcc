"""A simulated plant with OPC UA and Modbus: ``plantlog lab simulator``, or ``python -m simulator``."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import signal
import sys
import urllib.error
import urllib.request
from dataclasses import asdict
from pathlib import Path

from core import log
from core.errors import OperationError, PlantlogError
from core.timestamps import iso, now_us
from ingest.spool.waiting import settled
from simulator.export import export
from simulator.faults import KINDS, RULES, SECONDS
from simulator.plants import LoadPlant, ReplayPlant
from simulator.scenarios import SCENARIOS, ScenarioPlant, parse
from simulator.scenarios import SECONDS as SCENARIO_SECONDS
from simulator.tags import SimPlant
from simulator.truth import MAX_BYTES, truth_names

# Servers and the database's client are imported where they are used: the other commands answer at once.
# ruff: noqa: PLC0415

_MOST_HZ = 100
_STATE = Path(os.environ.get("PLANTLOG_STATE", ".state"))
_CONTROL_PORT = int(
    os.environ.get("PLANTLOG_SIMULATOR_CONTROL_PORT", "9100")
)  # set for the appliance in the state folder


def main() -> int:
    """Run the command line."""
    log.configure()
    arguments = _arguments().parse_args()
    try:
        arguments.run(arguments)
    except (PlantlogError, OSError) as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 1
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plantlog lab simulator", description="A simulated plant with OPC UA and Modbus."
    )
    commands = parser.add_subparsers(required=True)
    plant_options = argparse.ArgumentParser(add_help=False)
    plant_options.add_argument("--host", default="127.0.0.1", help="address to listen on; default: %(default)s")
    plant_options.add_argument(
        "--opcua-port", type=int, default=4840, help="port of the OPC UA server; default: %(default)s"
    )
    plant_options.add_argument(
        "--modbus-port",
        type=int,
        default=5020,
        help="port of the first Modbus device; the others follow; default: %(default)s",
    )
    plant_options.add_argument(
        "--health-port", type=int, default=9101, help="health port in the exported plant.toml; default: %(default)s"
    )
    plant_options.add_argument(
        "--viewer-port", type=int, default=9110, help="viewer port in the exported plant.toml; default: %(default)s"
    )
    plant_options.add_argument("--seed", type=int, default=1, help="seed of the random values; default: %(default)s")
    plant_options.add_argument(
        "--channels",
        type=int,
        help="load test: number of channels; ten of eleven OPC UA, at most 5,000; the rest Modbus",
    )
    plant_options.add_argument(
        "--hz", type=float, default=1.0, help="load test: values per second and channel; default: 1"
    )
    plant_options.add_argument(
        "--replay", type=Path, help="replay a CSV file, or a .dat file with --columns; its columns are the tags"
    )
    plant_options.add_argument("--columns", type=Path, help="CSV file with the column names of the --replay file")
    plant_options.add_argument(
        "--replay-period", type=_duration, default=1.0, help='time between rows, such as "500ms"; default: 1s'
    )
    security = plant_options.add_mutually_exclusive_group()
    security.add_argument(
        "--secure", action="store_true", default=None, help="OPC UA with certificates; default, except for load tests"
    )
    security.add_argument("--insecure", dest="secure", action="store_false", help="OPC UA without certificates")
    scenarios = "; ".join(f"{name}: {what}" for name, what in SCENARIOS.items())
    plant_options.add_argument("--scenario", action="append", default=[], metavar="NAME[@SECONDS]", help=scenarios)
    run = commands.add_parser("run", parents=[plant_options], help="run the simulated plant")
    run.add_argument(
        "--state",
        type=Path,
        default=_STATE / "simulator",
        help="folder for ground truth and certificates; default: %(default)s",
    )
    run.add_argument("--control-port", type=int, default=9100, help="port for faults and status; default: %(default)s")
    run.add_argument("--speed", type=float, default=1.0, help="speed factor of plant time; default: 1")
    run.add_argument(
        "--jitter", type=_duration, default=0.0, help="maximum difference of source times within a cycle; default: none"
    )
    run.add_argument(
        "--history", type=int, help="history length per OPC UA node, in values; default: 2000, for load tests 0"
    )
    run.add_argument(
        "--truth-bytes",
        type=int,
        default=MAX_BYTES,
        help="maximum size of a file of the ground truth, of which two are kept; default: %(default)s",
    )
    run.add_argument("--no-truth", action="store_true", help="do not record the ground truth")
    run.set_defaults(run=lambda arguments: asyncio.run(_run(arguments)))
    export_parser = commands.add_parser(
        "export", parents=[plant_options], help="write the configuration of the plant: plant.toml and tag lists"
    )
    export_parser.add_argument("folder", type=Path, help="folder to write to")
    export_parser.set_defaults(run=_export)
    compare_parser = commands.add_parser("compare", help="compare the stored samples with the ground truth")
    compare_parser.add_argument(
        "--truth",
        type=Path,
        default=_STATE / "simulator" / "truth",
        help="folder of the ground truth; default: %(default)s",
    )
    compare_parser.add_argument("--dsn", help="database; default: the reader's DSN in --secrets")
    compare_parser.add_argument(
        "--secrets", type=Path, default=_STATE / "secrets", help="folder of the reader's DSN; default: %(default)s"
    )
    compare_parser.add_argument(
        "--seconds", type=float, default=60.0, help="length of the time range, without --from; default: 60"
    )
    compare_parser.add_argument("--from", dest="from_us", type=int, help="start, in source time: µs since 1970 UTC")
    compare_parser.add_argument("--to", dest="to_us", type=int, help="end, likewise; default: 5 s ago")
    compare_parser.add_argument(
        "--spool", type=Path, default=_STATE / "spool", help="folder of the spool files; default: %(default)s"
    )
    compare_parser.add_argument(
        "--wait",
        type=float,
        default=60.0,
        help="maximum wait (s) until what collectors and spool still have is stored; default: 60",
    )
    compare_parser.add_argument("--json", action="store_true", help="print JSON")
    compare_parser.set_defaults(run=lambda arguments: asyncio.run(_compare(arguments)))
    _add_controls(commands, scenarios)
    return parser


def _add_controls(commands: argparse._SubParsersAction[argparse.ArgumentParser], scenarios: str) -> None:
    """Add the commands for a simulator that runs."""
    control = argparse.ArgumentParser(add_help=False)
    control.add_argument(
        "--control-port",
        type=int,
        default=_CONTROL_PORT,
        help="control port of the simulator; default: that of the appliance in the state folder (%(default)s)",
    )
    fault = commands.add_parser("fault", parents=[control], help="inject a fault")
    fault.add_argument("target", help="opcua, the name of a device, or the name of a channel")
    fault.add_argument("fault", choices=KINDS, help="; ".join(f"{kind}: {rule.what}" for kind, rule in RULES.items()))
    fault.add_argument("--seconds", type=float, default=SECONDS, help="duration; default: %(default)g")
    fault.add_argument("--value", type=lambda text: float(int(text, 0)) if text[:2] == "0x" else float(text),
                       help="status code, exception code, or seconds; see the fault")  # fmt: skip
    fault.set_defaults(run=_fault)
    scenario = commands.add_parser(
        "scenario", parents=[control], help="let a scenario happen in the demo plant, for questions to find it"
    )
    scenario.add_argument("scenario", choices=SCENARIOS, help=scenarios)
    scenario.add_argument("--seconds", type=float, default=SCENARIO_SECONDS, help="duration; default: %(default)g")
    scenario.set_defaults(run=_scenario)


def _plant(arguments: argparse.Namespace) -> SimPlant:
    if arguments.replay is not None:
        return ReplayPlant(arguments.replay, arguments.columns, arguments.replay_period)
    if arguments.channels is not None:
        if not 1 <= arguments.channels <= 1_000_000 or not 0 < arguments.hz <= _MOST_HZ:
            raise OperationError(f"--channels: legal 1 to 1000000; --hz: legal above 0, to {_MOST_HZ}")
        return LoadPlant(arguments.channels, arguments.hz, arguments.seed)
    return ScenarioPlant(arguments.seed, [parse(text) for text in arguments.scenario])


def _secure(arguments: argparse.Namespace) -> bool:
    return arguments.channels is None if arguments.secure is None else bool(arguments.secure)


def _duration(text: str) -> float:
    """Seconds, from ``500ms`` as in plant.toml, or from a number of seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"found {text!r}; legal: a duration such as 500ms, 1s, 2m")
    return float(match[1]) * {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}[match[2]]


async def _run(arguments: argparse.Namespace) -> None:
    from core.servers import http
    from simulator.simulation import Simulator, control_application

    gc.freeze()  # what is imported stays
    gc.set_threshold(50_000, 20, 20)  # else it takes a third of the time in which asyncua makes nodes
    simulator = Simulator(
        _plant(arguments),
        arguments.state,
        _secure(arguments),
        arguments.speed,
        0 if arguments.no_truth else arguments.truth_bytes,
        arguments.jitter,
        arguments.history,
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with http.serve(control_application(simulator, arguments.host), arguments.host, arguments.control_port):
        await simulator.run(arguments.host, arguments.opcua_port, arguments.modbus_port, stop)


def _export(arguments: argparse.Namespace) -> None:
    ports = (arguments.opcua_port, arguments.modbus_port)
    export(
        _plant(arguments),
        arguments.folder,
        arguments.host,
        *ports,
        _secure(arguments),
        arguments.health_port,
        arguments.viewer_port,
    )


async def _compare(arguments: argparse.Namespace) -> None:
    from simulator.compare import compare, pending

    dsn = arguments.dsn or (arguments.secrets / "reader.dsn").read_text().strip()
    to = now_us() - 5_000_000 if arguments.to_us is None else arguments.to_us  # data in transit is not missing
    start = to - int(arguments.seconds * 1e6) if arguments.from_us is None else arguments.from_us
    names = truth_names(arguments.truth)
    _, left = await settled(lambda: pending(arguments.spool, dsn, to, names), arguments.wait)
    result = await compare(arguments.truth, dsn, start, to)
    if not result["all"].published:
        raise OperationError(
            f"there is nothing to compare: by {arguments.truth}, the simulator published nothing from "
            f"{iso(start)} to {iso(to)}. Only the simulated plant has a ground truth"
        )
    if arguments.json:
        parts = {name: asdict(part) for name, part in result.items()}
        print(json.dumps({**parts.pop("all"), "kinds": parts, "pending": left}, ensure_ascii=False))
        return
    counts = {
        name: [count for count in asdict(part).values() if isinstance(count, int)] for name, part in result.items()
    }
    print(f"{'':8}" + "".join(f"{name:>12}" for name in ("", "", "", "", "", "missing,", "missing,")))
    heads = ("published", "stored", "duplicated", "invented", "altered", "recorded", "silent")
    print(f"{'':8}" + "".join(f"{name:>12}" for name in heads))
    for name, numbers in counts.items():
        print(f"{name:8}" + "".join(f"{count:>12,}" for count in numbers))
    for example in result["all"].examples:
        print(example)
    if left:
        print(f"Not all of it is stored after {arguments.wait:g} s, and counts as missing: {'; '.join(left)}")


def _fault(arguments: argparse.Namespace) -> None:
    names = ("target", "fault", "seconds", "value")
    _control(arguments.control_port, "fault", {name: getattr(arguments, name) for name in names})


def _scenario(arguments: argparse.Namespace) -> None:
    payload = {"scenario": arguments.scenario, "seconds": arguments.seconds}
    _control(arguments.control_port, "scenario", payload)


def _control(port: int, path: str, payload: dict[str, object]) -> None:
    """Post to a simulator that runs, and print its answer. Raises OperationError."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{path}", json.dumps(payload).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            print(json.dumps(json.load(answer), ensure_ascii=False))
    except urllib.error.HTTPError as error:
        raise OperationError(json.loads(error.read())["error"]) from None
    except urllib.error.URLError as error:
        raise OperationError(f"no simulator answers on port {port}: {error.reason}") from None


if __name__ == "__main__":
    sys.exit(main())
