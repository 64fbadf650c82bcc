"""What is in the spool folder, read without changing anything, whether or not the processes run."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ingest.batch import now_us
from ingest.errors import OperationError
from ingest.spool import aside
from ingest.spool.file import examine, read_only, used_bytes
from ingest.spool.repair import damaged_files
from ops.paths import State
from ops.spool import age
from schema.queries import load

_MIB = 1024**2


def look(state: State) -> dict[str, Any]:
    """The spool files, what was found damaged, and the batches that were set aside. Raises OperationError."""
    if not state.spool.is_dir():
        raise OperationError(f"{state.spool} is missing: `plantlog up` makes it")
    limit = _limit(state)
    names = {path.name for path in state.spool.glob("*.sqlite")}
    names |= {path.name for path in state.spool.glob(f"{aside.FOLDER}/*/*.sqlite")}
    files = [_file(state.spool / name, limit) for name in sorted(names)]
    kept = sorted((state.spool / aside.FOLDER).glob("*.json"))
    return {"folder": str(state.spool), "files": files, "aside": [_aside(path) for path in kept]}


def _limit(state: State) -> int | None:
    """Bytes that a collector's spool may have; None where the configuration in force does not tell."""
    from ingest.config.snapshot import in_force  # noqa: PLC0415  (slow)

    try:
        snapshot = in_force(state.root, tags_of=())
    except OperationError:
        return None  # of another version of plantlog; what waits is shown all the same
    return None if snapshot is None else snapshot.plant.spool.max_bytes


def _file(path: Path, limit: int | None) -> dict[str, Any]:
    low = path.name.endswith(".backfill.sqlite")
    said: dict[str, Any] = {
        "name": path.name.removesuffix(".sqlite"),
        "path": str(path),
        "max_bytes": None if limit is None else limit // 4 if low else limit,
        "trouble": None,
        **dict.fromkeys(("batches", "rows", "bytes", "oldest", "newest")),
        "sources": [],
        "damaged": [str(kept) for kept in damaged_files(path)],
    }
    if not path.exists():
        return said | {"trouble": "it is missing"}
    try:
        with closing(read_only(path)) as connection:
            groups = connection.execute(load("spool")["by_source"]).fetchall()
            columns = ("source_id", "kind", "batches", "rows", "bytes", "oldest", "newest")
            sources = [dict(zip(columns, group, strict=True)) for group in groups]
            return said | {
                "batches": sum(one["batches"] for one in sources),
                "rows": sum(one["rows"] for one in sources),
                "bytes": used_bytes(connection),
                "oldest": min((one["oldest"] for one in sources), default=None),
                "newest": max((one["newest"] for one in sources), default=None),
                "sources": sources,
            }
    except (sqlite3.Error, TypeError) as error:
        return said | {"trouble": examine(path) or str(error)}


def _aside(path: Path) -> dict[str, Any]:
    try:
        kept = aside.read(path)
    except OperationError as error:
        return {"path": str(path), "why": str(error)}
    r = kept.record
    return {"path": str(path), "why": kept.why, "sequence": kept.sequence, "kind": r.kind, "rows": r.rows}


def table(found: dict[str, Any]) -> RenderableType:
    """The tables of :func:`look`."""
    files = Table(title=found["folder"], title_justify="left")
    for name in ("spool", "batches", "rows", "MiB", "of MiB", "oldest", "newest"):
        files.add_column(name, justify="left" if name == "spool" else "right")
    files.add_column("trouble")
    now = now_us()
    for one in found["files"]:
        files.add_row(
            escape(one["name"]),
            *(_number(one[key]) for key in ("batches", "rows")),
            *("" if one[key] is None else f"{one[key] / _MIB:,.1f}" for key in ("bytes", "max_bytes")),
            *("" if one[key] is None else f"{age((now - one[key]) / 1e6)} ago" for key in ("oldest", "newest")),
            escape(one["trouble"] or ""),
        )
    lines = [f"damaged: {escape(path)}" for one in found["files"] for path in one["damaged"]]
    lines += [f"set aside: {escape(one['path'])}: {escape(one['why'])}" for one in found["aside"]]
    return Group(files, *lines)


def _number(n: int | None) -> str:
    return "" if n is None else f"{n:,}"
