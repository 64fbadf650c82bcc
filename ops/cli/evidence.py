"""``plantlog evidence``: seal, verify, export and delete what is stored."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Mapping, Set
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from core.errors import OperationError
from core.formatting import count
from core.paths import State
from core.terminal import Console
from ops.cli.options import AsJson, Channels, PlantNames, PlantsFile

app = typer.Typer(
    help="Seal and verify what is stored; export it, or delete samples, with a record of that.", no_args_is_help=True
)
_T = TypeVar("_T")
_INSTALLATION = "Installation that sealed: its plant, its id, or the beginning of that. Default: this one."


@app.command()
def seal(
    day: Annotated[
        str | None, typer.Argument(metavar="DAY", help="Day (UTC), such as 2026-03-09. Default: all closed days.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="TIME", help="Seal days that ended by this time (UTC if it has no offset)."),
    ] = None,
    public_key: Annotated[bool, typer.Option("--public-key", help="Print the public key and exit.")] = False,
    rotate_key: Annotated[bool, typer.Option("--rotate-key", help="Create a new key, signed by the old one.")] = False,
    new_key: Annotated[bool, typer.Option("--new-key", help="Create a new key because the old one is lost.")] = False,
    accept_chain: Annotated[
        bool, typer.Option("--accept-chain", help="Continue a chain that lacks seals, as after a restore.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Seal closed days with signed, chained digests. Seals of days with late data are amended."""
    from history.reading.reader import connected
    from history.seals import keys
    from history.seals.seal import seal_days, summary

    state = State.current()
    owner = state.dsn("owner")

    async def public_key_in_use() -> keys.Signer:
        async with connected(owner, "plantlog seal") as connection:
            return await (keys.rotate(connection, state) if rotate_key else keys.signer(connection, state, new_key))

    if public_key or rotate_key or new_key:
        key = _run(public_key_in_use())
        typer.echo(f"key {key.fingerprint}", err=True)
        typer.echo(key.pem(), nl=False)
        return
    only = _parse_day(day)
    until, next_day_text = _run(_seal_until(owner, before, only))
    result = _run(seal_days(owner, state, until, only, accept_chain, lambda line: typer.echo(line, err=True)))
    if result is None:
        raise OperationError("another session is sealing; nothing was done")
    if as_json:
        typer.echo(
            json.dumps(
                [{**item.seal.as_dict(), "seconds": item.seconds, "hash": item.seal.hash()} for item in result],
                indent=2,
            )
        )
        return
    for item in result:
        s = item.seal
        numbers = {"sample": s.samples, "channel": s.channels, "event": s.events, "gap": s.gaps}
        numbers_text = ", ".join(count(number, noun) for noun, number in numbers.items())
        more = f"; {summary(item.differs)}" if item.differs else ""
        typer.echo(f"{s.day} revision {s.revision}, serial {s.serial}: {numbers_text}{more}")
    if result:
        typer.echo(f"hash of the last seal: {result[-1].seal.hash()}")
    elif only is not None:
        typer.echo(f"nothing to seal: no data for {only}, or nothing new since its seal")
    else:
        typer.echo(f"nothing to seal: every closed day has a seal{next_day_text}")


async def _seal_until(owner: str, before: str | None, day: date | None) -> tuple[datetime, str]:
    """The moment before which days are closed; without ``before`` also in words when the next one will be."""
    from history.reading.reader import connected, lateness, seal_time

    now = datetime.now(UTC)
    if before is not None:
        return min(_parse_time("--before", before), now), ""
    async with connected(owner, "plantlog seal") as connection:
        until = now - await lateness(connection)
        first = day or until.date()
        closed_at = await seal_time(connection, first)
    when = f"can be sealed after {closed_at:%Y-%m-%d %H:%M} UTC"
    if day is not None and closed_at > now:
        raise OperationError(f"{day} is not closed yet; it {when}")
    return until, f"; {first} {when}"


def _parse_time(option: str, text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OperationError(f"{option}: found {text!r}; legal: a time such as 2026-03-10T00:00:00Z") from None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


@app.command()
def verify(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="DAY|rollups|FILE",
            help="Day, the rollups, or an exported file, with events and gaps beside it. Default: all sealed days.",
        ),
    ] = None,
    channel: Channels = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="PEM", help="Trusted public key. Default: this plant's.")
    ] = None,
    installation: Annotated[
        str | None,
        typer.Option("--installation", metavar="INSTALLATION|all", help=f"{_INSTALLATION[:-1]}. all: every chain."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="First day (UTC). Only for rollups.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End of the range. Only for rollups.")
    ] = None,
    deposited: Annotated[
        str | None, typer.Option(metavar="HASH", help="Hash of a seal that a third party has: the chain must have it.")
    ] = None,
    plants: PlantsFile = None,
    plant: PlantNames = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also exit with 1 for explained differences, deletions, unsealed samples.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=0, help="Maximum number of differences per day. 0: all. Default: 40.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify seals, rollups or an exported file. Lists what differs. Exits with 1 for unexplained differences."""
    from history.seals.report import format_report
    from history.seals.verify import verify as run

    state = State.current()
    options: dict[str, object] = {
        **{"channel": channel or None, "key": key, "installation": installation, "from": since, "to": until},
        **{"deposited": deposited, "strict": strict or None, "limit": limit},
    }
    limit = 40 if limit is None else limit
    if plants is not None or plant:
        _require_only(options, "plants", {"deposited", "strict", "limit"})
        _verify_plants(plants, plant or [], _parse_day(what), deposited, strict, limit, as_json)
        return
    if what == "rollups":
        _require_only(options, "rollups", {"from", "to"})
        _verify_rollups(state, since, until, as_json)
        return
    if what is not None and (what.endswith(".parquet") or Path(what).is_file()):
        _require_only(options, "a file", {"key", "deposited", "strict"})
        _verify_file(state, what, key, deposited, as_json, strict)
        return
    _require_only(options, "days", options.keys() - {"from", "to"})
    day = _parse_day(what, "neither a day such as 2026-03-09 nor an existing file")
    reports = _run(run(state.dsn("reader"), state, key, day, channel or [], installation, deposited))
    if as_json:
        written = [report.as_json() for report in reports]
        typer.echo(json.dumps(written if installation == "all" else written[0], indent=2))
    else:
        typer.echo("\n".join(line for report in reports for line in format_report(report, limit)))
    days = [day for report in reports for day in report.days]
    if not all(report.ok for report in reports) or (strict and not all(day.strictly_ok for day in days)):
        raise typer.Exit(1)


def _require_only(options: Mapping[str, object], what: str, legal: Set[str]) -> None:
    """Raise OperationError for an option that would change nothing."""
    for option in (option for option, value in options.items() if value is not None and option not in legal):
        names = ", ".join(f"--{name}" for name in options if name in legal)
        raise OperationError(f"--{option} does not apply to {what}; legal: {names} and --json")


def _verify_plants(
    file: Path | None,
    names: list[str],
    day: date | None,
    deposited: str | None,
    strict: bool,
    limit: int,
    as_json: bool,
) -> None:
    from history.questions.ask import chosen_plants
    from history.seals.report import amendment_lines, limited
    from history.standalone import sealing

    plants = chosen_plants(file, names)
    assert plants is not None
    verdicts = []
    for verdict in plants.verify(lambda plant: plants.days(plant) if day is None else [day], deposited):
        verdicts.append(verdict)
        if not as_json:
            what = f"{verdict.plant.name} {verdict.day or 'chain of seals'}"
            as_sealed = f"as sealed; {sealing(verdict.seals[-1])}" if verdict.day and verdict.seals else "as sealed"
            lines = limited(verdict.problems or [as_sealed], limit) + amendment_lines(verdict.amended, limit)
            typer.echo("\n".join(f"{what}: {line}" for line in lines))
    if as_json:
        written = [
            {
                **{"plant": verdict.plant.name, "day": verdict.day and str(verdict.day), "problems": verdict.problems},
                "amended": [asdict(amendment) for amendment in verdict.amended],
                "seals": [seal.as_dict() for seal in verdict.seals],
            }
            for verdict in verdicts
        ]
        typer.echo(json.dumps(written, indent=2))
    if any(verdict.problems or (strict and not verdict.strictly_ok) for verdict in verdicts):
        raise typer.Exit(1)


def _verify_rollups(state: State, since: str | None, until: str | None, as_json: bool) -> None:
    from history import rollups

    first = None if since is None else _parse_time("--from", since)
    last = None if until is None else _parse_time("--to", until)
    result = rollups.verify_rollups(state, first, last)
    if as_json:
        typer.echo(json.dumps(rollups.as_json(result), indent=2))
    else:
        rollups.print_result(result, Console())
    if result.differences:
        raise typer.Exit(1)


def _verify_file(state: State, path: str, key: Path | None, deposited: str | None, as_json: bool, strict: bool) -> None:
    from history import standalone
    from history.seals.keys import trust_anchors

    trusted = trust_anchors(state, key)
    try:
        verdicts = standalone.verify_day(path, trusted, deposited)
    except standalone.UnverifiableError as error:
        raise OperationError(str(error)) from error
    typer.echo(standalone.report_of_day(verdicts, trusted is not None, as_json))
    if not all(verdict.strictly_ok if strict else verdict.ok for verdict in verdicts.values()):
        raise typer.Exit(1)


@app.command()
def delete(
    channel: Annotated[
        list[str], typer.Option("--channel", "-c", metavar="NAME", help="Name, or pattern with *. Can be repeated.")
    ],
    since: Annotated[str, typer.Option("--from", metavar="TIME", help="First time, UTC if it has no zone.")],
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="Time behind the last, UTC if it has no zone.")],
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="Reason. It is recorded, and part of the amended seals.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, samples are only counted.")] = False,
) -> None:
    """Delete samples. Of sealed days, the seals are amended, and name who deleted them and why."""
    from history.seals.delete import Deletion
    from history.seals.delete import delete as run
    from ops.cli.permissions import account

    state = State.current()
    first, last = _parse_time("--from", since), _parse_time("--to", until)
    if first >= last:
        raise OperationError(f"--from: found {since}; legal: a time before --to {until}")
    if not why.strip():
        raise OperationError("--why: found nothing; legal: the reason")
    result = _run(run(state.dsn("owner"), state, Deletion(channel, first, last, why, account(state)), not yes))
    for named, n in result.counts.items():
        typer.echo(f"{count(n, 'sample')} of {named.describe()}")
    done = "deleted" if yes else "to be deleted; --yes deletes them"
    typer.echo(f"{count(result.samples, 'sample')} {done}")
    for item in result.seals:
        typer.echo(f"{item.seal.day} revision {item.seal.revision}, serial {item.seal.serial}")


@app.command()
def export(
    day: Annotated[
        str | None,
        typer.Argument(metavar="DAY", help="Sealed day (UTC), such as 2026-03-09. Instead of it: --from and --until."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="File to create. Default: DAY.parquet, export.parquet.")
    ] = None,
    channel: Channels = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="First time of an interval, UTC if it has no zone.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Time behind the last, UTC if it has no zone.")
    ] = None,
    installation: Annotated[
        str | None, typer.Option("--installation", metavar="INSTALLATION", help=_INSTALLATION)
    ] = None,
    with_verifier: Annotated[
        bool, typer.Option("--with-verifier", help="Also write the stand-alone verifier verify_plantlog.py.")
    ] = False,
) -> None:
    """Export samples, events and gaps as Parquet files: a sealed day with its seal, or any interval without.

    The output says which days of an interval are sealed, and whether what was exported is as sealed.
    """
    from history.exports.export import export as run

    state = State.current()
    sealed_day = _parse_day(day)
    if sealed_day is None or since or until:
        if sealed_day is not None or not (since and until) or with_verifier:
            raise OperationError(
                "found neither a day alone nor an interval; legal: a day such as 2026-03-09, or --from and --until, "
                "without --with-verifier"
            )
        _export_interval(state, since, until, to or Path("export.parquet"), channel or [], installation)
        return
    path = to or Path(f"{sealed_day}.parquet")
    options = channel or [], with_verifier, installation
    result = _run(run(state.dsn("reader"), state, sealed_day, path, *options))
    for name, rows in result.files:
        typer.echo(f"{name}: {count(rows, 'row')}, {name.stat().st_size:,} bytes")
    if result.differs:
        raise OperationError(
            f"stored data differ from the seal in {count(result.differs, 'hour')}; verification of the files will show "
            f"it: see `plantlog evidence verify {sealed_day}`"
        )


def _export_interval(
    state: State, since: str, until: str, to: Path, patterns: list[str], installation: str | None
) -> None:
    from history.exports.export_interval import ExportInterval, export_interval

    interval = ExportInterval(_parse_time("--from", since), _parse_time("--until", until), patterns)
    if interval.since >= interval.until:
        raise OperationError(f"--from: found {since}; legal: a time before --until {until}")
    result = _run(export_interval(state.dsn("reader"), state, interval, to, installation))
    for name, rows in result.files:
        typer.echo(f"{name}: {count(rows, 'row')}, {name.stat().st_size:,} bytes")
    for day in result.days:
        typer.echo(day.describe())
    if not all(day.as_sealed for day in result.days):
        raise OperationError("stored data differ from the seals: see `plantlog evidence verify`")


def _parse_day(text: str | None, wrong: str = "not a day such as 2026-03-09") -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise OperationError(f"{text!r} is {wrong}") from None


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    import asyncio

    import asyncpg

    from core.database import database_errors

    with database_errors():
        try:
            return asyncio.run(work)
        except asyncpg.UndefinedTableError as error:
            raise OperationError(f"{error}: the schema may be outdated; run `plantlog up`") from error
