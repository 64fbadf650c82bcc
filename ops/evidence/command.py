"""``plantlog seal``, ``plantlog verify`` and ``plantlog export``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import asyncpg
import typer
from rich.console import Console

from ingest.errors import DatabaseError, OperationError
from ops.paths import State

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415

_T = TypeVar("_T")
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Channels = Annotated[list[str] | None, typer.Option("--channel", "-c", help="A name or pattern with *; more.")]


def seal(
    day: Annotated[str | None, typer.Argument(metavar="[DAY]", help="2026-03-09 (UTC); default: all closed.")] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="Days that ended by then [now less the lateness].")
    ] = None,
    public_key: Annotated[
        bool, typer.Option("--public-key", help="Print the public key for verifiers, and end.")
    ] = False,
    rotate_key: Annotated[
        bool, typer.Option("--rotate-key", help="Sign with a new key, vouched for by the old.")
    ] = False,
    new_key: Annotated[bool, typer.Option("--new-key", help="The old key is lost: go on with another.")] = False,
    accept_chain: Annotated[
        bool, typer.Option("--accept-chain", help="Go on from a chain that lacks seals, as after a restore.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Seal closed days: digests of all that is stored, signed and chained; amend seals where data came late."""
    from ops.evidence import keys
    from ops.evidence.reading import connect
    from ops.evidence.seal import seal_days, summary
    from ops.spool.kept_out import dsn

    state = State.current()
    owner = dsn(state, "owner")

    async def with_key() -> keys.Signer:
        connection = await connect(owner, "plantlog seal")
        try:
            return await (keys.rotate(connection, state) if rotate_key else keys.signer(connection, state, new_key))
        finally:
            connection.terminate()

    if public_key or rotate_key or new_key:
        key = _run(with_key())
        typer.echo(f"key {key.fingerprint}", err=True)
        typer.echo(key.pem(), nl=False)
        return
    only = _day(day)
    until, open_day = _run(_closed(owner, before, only))
    done = _run(seal_days(owner, state, until, only, accept_chain, lambda line: typer.echo(line, err=True)))
    if done is None:
        raise OperationError("another session is sealing: nothing was done")
    if as_json:
        typer.echo(
            json.dumps(
                [{**asdict(one.seal), "seconds": one.seconds, "hash": one.seal.hash()} for one in done], indent=2
            )
        )
        return
    for one in done:
        s = one.seal
        what = f"{s.samples:,} samples, {s.channels:,} channels, {s.events:,} events, {s.gaps:,} gaps"
        more = f"; {summary(one.differs)}" if one.differs else ""
        typer.echo(f"{s.day} revision {s.revision}, serial {s.serial}: {what}{more}")
    if done:
        typer.echo(f"hash of the last seal: {done[-1].seal.hash()}")
    elif only is not None:
        typer.echo(f"nothing to seal: nothing is stored of {only}, or nothing new since its seal")
    else:
        typer.echo(f"nothing to seal: no closed day without a seal{open_day}")


async def _closed(owner: str, before: str | None, day: date | None) -> tuple[datetime, str]:
    """The moment before which days are closed; without ``before`` also in words when the next one will be."""
    from ops.evidence.reading import closes, connect, lateness

    now = datetime.now(UTC)
    if before is not None:
        return min(_time("--before", before), now), ""
    connection = await connect(owner, "plantlog seal")
    try:
        until = now - await lateness(connection)
        first = day or until.date()
        closed_at = await closes(connection, first)
    finally:
        connection.terminate()
    when = f"can be sealed from {closed_at:%Y-%m-%d %H:%M} UTC on"
    if day is not None and closed_at > now:
        raise OperationError(f"{day} is not closed: it {when}")
    return until, f"; {first} {when}"


def _time(option: str, text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OperationError(f"{option}: found {text!r}; legal: a time such as 2026-03-10T00:00:00Z") from None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def verify(
    what: Annotated[str | None, typer.Argument(metavar="[DAY|rollups|FILE]", help="Default: all sealed days.")] = None,
    channel: _Channels = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="PEM", help="Trust this public key [our own].")] = None,
    since: Annotated[datetime | None, typer.Option("--from", help="Of rollups: the first day (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option("--to", help="Of rollups: up to this time.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="End with 1 for explained differences, too.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Differences to list of a day, 0: all.")] = 40,
    as_json: _Json = False,
) -> None:
    """Recompute what was sealed and name each day, channel and hour that differs; 1 if something is not explained."""
    from ops.evidence.verify import lines
    from ops.evidence.verify import verify as run
    from ops.spool.kept_out import dsn

    state = State.current()
    if what == "rollups":
        _verify_rollups(state, since, until, as_json)
        return
    if since is not None or until is not None:
        raise OperationError("--from and --to are of `plantlog verify rollups`")
    if what is not None and (what.endswith(".parquet") or Path(what).is_file()):
        _verify_file(state, what, key, as_json)
        return
    report = _run(run(dsn(state, "reader"), state, key, _day(what), channel or []))
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        typer.echo("\n".join(lines(report, limit)))
    if not report.ok or (strict and any(day.findings for day in report.days)):
        raise typer.Exit(1)


def _verify_rollups(state: State, since: datetime | None, until: datetime | None, as_json: bool) -> None:
    from ops.rollups import report
    from ops.rollups.verify import verify_rollups

    verified = verify_rollups(state, _utc(since), _utc(until))
    if as_json:
        typer.echo(json.dumps(report.as_json(verified), indent=2))
    else:
        report.report(verified, Console())
    if verified.differences:
        raise typer.Exit(1)


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def _verify_file(state: State, path: str, key: Path | None, as_json: bool) -> None:
    from ops.evidence import standalone
    from ops.evidence.keys import anchors

    trusted = anchors(state, key)
    try:
        verdict = standalone.verify_file(path, trusted)
    except standalone.Unsound as error:
        raise OperationError(str(error)) from error
    said = standalone.as_json(path, verdict)
    typer.echo(json.dumps(said, indent=2) if as_json else standalone.report(path, verdict, trusted is not None))
    if not verdict.ok:
        raise typer.Exit(1)


def export(
    day: Annotated[str, typer.Argument(metavar="DAY", help="2026-03-09 (UTC).")],
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="A new file [DAY.parquet].")] = None,
    channel: _Channels = None,
    with_verifier: Annotated[
        bool, typer.Option("--with-verifier", help="Also write verify_plantlog.py beside.")
    ] = False,
) -> None:
    """Write a sealed day as Parquet, its seal inside: samples, and in files beside it events and gaps."""
    from ops.evidence.export import export as run
    from ops.spool.kept_out import dsn

    state = State.current()
    chosen = _day(day)
    if chosen is None:
        raise OperationError("which day?")
    path = to or Path(f"{chosen}.parquet")
    done = _run(run(dsn(state, "reader"), chosen, path, channel or [], with_verifier))
    for name, rows in done.files:
        typer.echo(f"{name}: {rows:,} rows, {name.stat().st_size:,} bytes")
    if done.differs:
        raise OperationError(
            f"what is stored differs from the seal in {done.differs:,} hours; the files say so when they are verified: "
            f"`plantlog verify {chosen}` tells why"
        )


def _day(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise OperationError(f"{text!r} is neither a day such as 2026-03-09 nor a file that is there") from None


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    try:
        return asyncio.run(work)
    except asyncpg.UndefinedTableError as error:
        raise OperationError(f"{error}: is the database of another version? `plantlog up` renews it") from error
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise DatabaseError(f"the database does not answer: {str(error) or type(error).__name__}") from error
