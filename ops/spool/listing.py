"""The content of the spool folder. Read-only; works while the processes run."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from core.errors import OperationError
from core.formatting import duration
from core.paths import State
from core.timestamps import now_us
from ingest.journal.replay import is_request
from ingest.spool import dead_letter
from ingest.spool.file import find_damage, read_only, used_bytes
from ingest.spool.repair import damaged_files
from ingest.spool.segments import segments
from schema.queries import load

_MIB = 1024**2


def read_spools(state: State) -> dict[str, Any]:
    """The spool files, damaged files, and batches in the dead-letter folder. Raises OperationError."""
    if not state.spool.is_dir():
        raise OperationError(f"{state.spool} does not exist: run `plantlog up`")
    limit = _limit(state)
    names = {path.name for path in state.spool.glob("*.sqlite")}
    names |= {path.name for path in state.spool.glob(f"{dead_letter.FOLDER}/*/*.sqlite")}
    files = [_file(state.spool / name, limit) for name in sorted(names)]
    batch = sorted((state.spool / dead_letter.FOLDER).glob("*.json"))
    return {
        "folder": str(state.spool),
        "files": files,
        "dead_letters": [_dead_letter(path) for path in batch],
        "journal": _journal(state.spool),
    }


def _limit(state: State) -> int | None:
    """Bytes that a collector's spool may have; None: the configuration in force can't be read."""
    from core.config.snapshot import in_force  # noqa: PLC0415  (slow)

    try:
        snapshot = in_force(state.root, tags_of=())
    except OperationError:
        return None  # of another version of plantlog; what waits is shown all the same
    return None if snapshot is None else snapshot.plant.spool.max_bytes


def _file(path: Path, limit: int | None) -> dict[str, Any]:
    low = path.name.endswith(".backfill.sqlite")
    entry: dict[str, Any] = {
        "name": path.name.removesuffix(".sqlite"),
        "path": str(path),
        "max_bytes": None if limit is None else limit // 4 if low else limit,
        "problem": None,
        **dict.fromkeys(("batches", "rows", "bytes", "oldest", "newest")),
        "sources": [],
        "damaged": [str(batch) for batch in damaged_files(path)],
    }
    if not path.exists():
        return entry | {"problem": "missing"}
    try:
        with closing(read_only(path)) as connection:
            groups = connection.execute(load("spool")["count_batches_by_source"]).fetchall()
            columns = ("source_id", "kind", "batches", "rows", "bytes", "oldest", "newest")
            sources = [dict(zip(columns, group, strict=True)) for group in groups]
            return entry | {
                "batches": sum(source["batches"] for source in sources),
                "rows": sum(source["rows"] for source in sources),
                "bytes": used_bytes(connection),
                "oldest": min((source["oldest"] for source in sources), default=None),
                "newest": max((source["newest"] for source in sources), default=None),
                "sources": sources,
            }
    except (sqlite3.Error, TypeError) as error:
        return entry | {"problem": find_damage(path) or str(error)}


def _journal(spool: Path) -> dict[str, Any]:
    """Journal: bytes, time of its oldest commit (µs; None: it is empty), and rows to be replayed."""
    files = segments(spool)
    return {
        "bytes": sum(path.stat().st_size for _, path in files if path.exists()),
        "begin": files[0][0] if files else None,
        "replays": sorted(str(path) for path in spool.iterdir() if is_request(path)),
    }


def _dead_letter(path: Path) -> dict[str, Any]:
    try:
        batch = dead_letter.read(path)
    except OperationError as error:
        return {"path": str(path), "why": str(error)}
    record = batch.record
    return {"path": str(path), "why": batch.why, "sequence": batch.sequence, "kind": record.kind, "rows": record.rows}


def table(spools: dict[str, Any]) -> RenderableType:
    """The tables of :func:`read_spools`."""
    files = Table(title=spools["folder"], title_justify="left")
    for name in ("spool", "batches", "rows", "MiB", "of MiB", "oldest", "newest"):
        files.add_column(name, justify="left" if name == "spool" else "right")
    files.add_column("problem")
    now = now_us()
    for file in spools["files"]:
        files.add_row(
            escape(file["name"]),
            *(_number(file[key]) for key in ("batches", "rows")),
            *("" if file[key] is None else f"{file[key] / _MIB:,.1f}" for key in ("bytes", "max_bytes")),
            *("" if file[key] is None else f"{duration((now - file[key]) / 1e6)} ago" for key in ("oldest", "newest")),
            escape(file["problem"] or ""),
        )
    lines = [f"damaged: {escape(path)}" for file in spools["files"] for path in file["damaged"]]
    lines += [f"rejected batch: {escape(batch['path'])}: {escape(batch['why'])}" for batch in spools["dead_letters"]]
    if (begin := spools["journal"]["begin"]) is not None:
        lines.append(
            f"journal: {spools['journal']['bytes'] / _MIB:,.1f} MiB, reaches back {duration((now - begin) / 1e6)}"
        )
    lines += [f"to be replayed: {escape(path)}" for path in spools["journal"]["replays"]]
    return Group(files, *lines)


def _number(n: int | None) -> str:
    return "" if n is None else f"{n:,}"
