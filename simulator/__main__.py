"""``python -m simulator run|export|compare|fault``: a small plant that speaks OPC UA and Modbus."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import urllib.error
import urllib.request
from dataclasses import asdict
from pathlib import Path

from ingest import http, log
from ingest.batch import now_us
from ingest.errors import OperationError, PlantlogError
from simulator.compare import compare
from simulator.control import application
from simulator.export import export
from simulator.faults import KINDS, RULES, SECONDS
from simulator.load import LoadPlant
from simulator.replay import ReplayPlant
from simulator.run import Simulator
from simulator.scenarios import SCENARIOS, ScenarioPlant, parse
from simulator.tags import Plant

_MOST_HZ = 100
_STATE = Path(os.environ.get("PLANTLOG_STATE", ".state"))
_CONTROL_PORT = int(os.environ.get("PLANTLOG_SIMULATOR_CONTROL_PORT", "9100"))  # of the appliance in the state folder


def main() -> int:
    """Do what was asked."""
    log.begin()
    given = _arguments().parse_args()
    try:
        given.do(given)
    except (PlantlogError, OSError) as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 1
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    commands = parser.add_subparsers(required=True)
    shape = argparse.ArgumentParser(add_help=False)
    shape.add_argument("--host", default="127.0.0.1")
    shape.add_argument("--opcua-port", type=int, default=4840)
    shape.add_argument("--modbus-port", type=int, default=5020, help="of the first device; the others follow")
    shape.add_argument("--health-port", type=int, default=9101, help="of the collectors, for export")
    shape.add_argument("--viewer-port", type=int, default=9110, help="of the dashboards, for export")
    shape.add_argument("--seed", type=int, default=1)
    shape.add_argument("--channels", type=int, help="load: this many channels, 5,000 by OPC UA, the rest by Modbus")
    shape.add_argument("--hz", type=float, default=1.0, help="load: values of each channel a second")
    shape.add_argument("--replay", type=Path, help="a CSV, or a .dat with --columns: its columns are the tags")
    shape.add_argument("--columns", type=Path, help="CSV that names the columns of --replay")
    shape.add_argument("--replay-period", type=_duration, default=1.0, help='between rows, such as "500ms"; default 1s')
    security = shape.add_mutually_exclusive_group()
    security.add_argument(
        "--secure", action="store_true", default=None, help="OPC UA with certificates; the default but for a load"
    )
    security.add_argument("--insecure", dest="secure", action="store_false", help="OPC UA without certificates")
    scenarios = "; ".join(f"{name}: {what}" for name, what in SCENARIOS.items())
    shape.add_argument("--scenario", action="append", default=[], metavar="NAME[@SECONDS]", help=scenarios)
    run = commands.add_parser("run", parents=[shape], help="serve the plant")
    run.add_argument("--state", type=Path, default=_STATE / "simulator", help="ground truth and certificates")
    run.add_argument("--control-port", type=int, default=9100, help="where it takes orders; default %(default)s")
    run.add_argument("--speed", type=float, default=1.0, help="plant seconds a second")
    run.add_argument(
        "--jitter", type=_duration, default=0.0, help="source times of one cycle differ by up to this; default: equal"
    )
    run.add_argument("--history", type=int, help="values of each OPC UA node to remember; default: none of a load")
    run.add_argument("--no-truth", action="store_true")
    run.set_defaults(do=lambda given: asyncio.run(_run(given)))
    to = commands.add_parser("export", parents=[shape], help="write the matching plant.toml and tag lists")
    to.add_argument("folder", type=Path)
    to.set_defaults(do=_export)
    against = commands.add_parser("compare", help="hold the table against the ground truth")
    against.add_argument("--truth", type=Path, default=_STATE / "simulator" / "truth")
    against.add_argument("--dsn", help="default: the reader's, in --secrets")
    against.add_argument("--secrets", type=Path, default=_STATE / "secrets")
    against.add_argument("--seconds", type=float, default=60.0, help="how far back, where no --from is given")
    against.add_argument("--from", dest="from_us", type=int, help="source time, µs since 1970 UTC")
    against.add_argument("--to", dest="to_us", type=int, help="source time, µs since 1970 UTC; default: 5 s ago")
    against.add_argument("--json", action="store_true")
    against.set_defaults(do=lambda given: asyncio.run(_compare(given)))
    fault = commands.add_parser("fault", help="make the plant fail")
    fault.add_argument("target", help="opcua, a device's name, or a channel's name")
    fault.add_argument("fault", choices=KINDS, help="; ".join(f"{kind}: {rule.what}" for kind, rule in RULES.items()))
    fault.add_argument("--seconds", type=float, default=SECONDS)
    fault.add_argument("--value", type=lambda text: float(int(text, 0)) if text[:2] == "0x" else float(text),
                       help="a status code, an exception code, or seconds")  # fmt: skip
    fault.add_argument(
        "--control-port",
        type=int,
        default=_CONTROL_PORT,
        help="where the simulator takes orders; default: that of the state folder's, now %(default)s",
    )
    fault.set_defaults(do=_fault)
    return parser


def _plant(given: argparse.Namespace) -> Plant:
    if given.replay is not None:
        return ReplayPlant(given.replay, given.columns, given.replay_period)
    if given.channels is not None:
        if not 1 <= given.channels <= 1_000_000 or not 0 < given.hz <= _MOST_HZ:
            raise OperationError(f"--channels: legal 1 to 1000000; --hz: legal above 0, to {_MOST_HZ}")
        return LoadPlant(given.channels, given.hz, given.seed)
    return ScenarioPlant(given.seed, [parse(text) for text in given.scenario])


def _secure(given: argparse.Namespace) -> bool:
    return given.channels is None if given.secure is None else bool(given.secure)


def _duration(text: str) -> float:
    """Seconds, from ``500ms`` as in plant.toml, or a number of seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"found {text!r}; legal: a duration such as 500ms, 1s, 2m")
    return float(match[1]) * {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}[match[2]]


async def _run(given: argparse.Namespace) -> None:
    truth = not given.no_truth
    simulator = Simulator(_plant(given), given.state, _secure(given), given.speed, truth, given.jitter, given.history)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with http.serve(application(simulator, given.host), given.host, given.control_port):
        await simulator.run(given.host, given.opcua_port, given.modbus_port, stop)


def _export(given: argparse.Namespace) -> None:
    ports = (given.opcua_port, given.modbus_port)
    export(_plant(given), given.folder, given.host, *ports, _secure(given), given.health_port, given.viewer_port)


async def _compare(given: argparse.Namespace) -> None:
    dsn = given.dsn or (given.secrets / "reader.dsn").read_text().strip()
    to = now_us() - 5_000_000 if given.to_us is None else given.to_us  # what is on its way is not missing
    start = to - int(given.seconds * 1e6) if given.from_us is None else given.from_us
    result = await compare(given.truth, dsn, start, to)
    if given.json:
        parts = {name: asdict(part) for name, part in result.items()}
        print(json.dumps({**parts.pop("all"), "kinds": parts}, ensure_ascii=False))
        return
    counts = {
        name: [count for count in asdict(part).values() if isinstance(count, int)] for name, part in result.items()
    }
    print(f"{'':8}" + "".join(f"{name:>12}" for name in ("", "", "", "", "", "missing,", "missing,")))
    heads = ("published", "stored", "duplicated", "invented", "altered", "with a gap", "no gap")
    print(f"{'':8}" + "".join(f"{name:>12}" for name in heads))
    for name, numbers in counts.items():
        print(f"{name:8}" + "".join(f"{count:>12,}" for count in numbers))
    for example in result["all"].examples:
        print(example)


def _fault(given: argparse.Namespace) -> None:
    asked = {"target": given.target, "fault": given.fault, "seconds": given.seconds, "value": given.value}
    request = urllib.request.Request(
        f"http://127.0.0.1:{given.control_port}/fault", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            print(answer.read().decode())
    except urllib.error.HTTPError as error:
        raise OperationError(json.loads(error.read())["error"]) from None
    except urllib.error.URLError as error:
        raise OperationError(f"no simulator answers on port {given.control_port}: {error.reason}") from None


if __name__ == "__main__":
    sys.exit(main())
