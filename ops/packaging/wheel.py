"""Makes the wheel of ``plantlog_archive``: what a notebook needs of plantlog, without a database driver.

``python -m ops.packaging.wheel FOLDER`` makes it of this checkout. It has the modules that ``history.notebook`` needs,
below one name of its own: ``core`` or ``history`` would be anybody's. One commit's is the same to the byte.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import typer

from core.errors import OperationError
from core.files import work_folder
from core.paths import CHECKOUT, plantlog_version

PACKAGE = "plantlog_archive"
REQUIRED = ("cryptography", "duckdb", "numpy", "pyarrow")
OPTIONAL = ("matplotlib", "polars")  # extras, of the same names
_ROOTS = ("core", "history", "schema")
_ENTRY = "history.notebook"
_LEFT_OUT = {  # modules for what needs plantlog itself, which others import only then
    "core.database",
    "history.archive_days.plants_file",
    "history.questions.database_request",
    "history.sql.own_tables",
    "history.sql.sources.database",
    "history.sql.sources.reader",
    "history.sql.sources.tables",
}
_QUERIES = ("schema/queries/duckdb.sql", "schema/questions/*.sql")
_TIME = (1980, 1, 1, 0, 0, 0)  # of all files: the first one that a zip can name


def make(folder: Path) -> None:
    """Make the wheel in a folder, whole or not at all."""
    version = plantlog_version()
    name = f"{PACKAGE}-{version}-py3-none-any.whl"
    information = f"{PACKAGE}-{version}.dist-info"
    files = {path: text.encode() for path, text in _modules()}
    queries = sorted(query for pattern in _QUERIES for query in CHECKOUT.glob(pattern))
    files |= {f"{PACKAGE}/{query.relative_to(CHECKOUT)}": query.read_bytes() for query in queries}
    files |= {f"{information}/{path}": text.encode() for path, text in _information(version)}
    rows = [f"{path},sha256={_digest(content)},{len(content)}\n" for path, content in files.items()]
    record = f"{information}/RECORD"
    files[record] = "".join([*rows, f"{record},,\n"]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    with work_folder(folder / name) as work:
        with zipfile.ZipFile(work / name, "w", zipfile.ZIP_DEFLATED) as wheel:
            for path, content in files.items():
                entry = zipfile.ZipInfo(path, _TIME)
                entry.external_attr, entry.compress_type = 0o100644 << 16, zipfile.ZIP_DEFLATED
                wheel.writestr(entry, content)
        (work / name).replace(folder / name)


def modules() -> dict[str, Path]:
    """Modules that the package needs, also within functions, by name. Raises OperationError for another library, or a
    module that is left out, that is imported when they are."""
    needed = dict[str, Path]()
    waiting = [_ENTRY]
    while waiting:
        module = waiting.pop()
        path = _path(module)
        if module in needed or module in _LEFT_OUT or path is None:
            continue
        needed[module] = path
        waiting += [module.rpartition(".")[0]] if "." in module else []
        tree = ast.parse(path.read_text(encoding="utf-8"))
        waiting += [name for name in _imported(tree) if name.partition(".")[0] in _ROOTS]
        for name in _imported(tree, in_functions=False):
            root = name.partition(".")[0]
            if name in _LEFT_OUT or root not in {*_ROOTS, *REQUIRED} | sys.stdlib_module_names:
                raise OperationError(f"{path.relative_to(CHECKOUT)} imports {name}, which {PACKAGE} must not need")
    return dict(sorted(needed.items()))


def _modules() -> Iterator[tuple[str, str]]:
    """Paths in the wheel and their texts."""
    yield f"{PACKAGE}/__init__.py", _renamed((CHECKOUT / "history" / "notebook" / "__init__.py").read_text())
    for path in modules().values():
        yield f"{PACKAGE}/{path.relative_to(CHECKOUT)}", _renamed(path.read_text(encoding="utf-8"))


def _renamed(text: str) -> str:
    """A module whose imports are of the package. Names of modules in texts are those of lazy imports."""
    roots = "|".join(_ROOTS)
    text = re.sub(rf"^( *(?:from|import) )({roots})\b", rf"\1{PACKAGE}.\2", text, flags=re.MULTILINE)
    return re.sub(rf'"(({roots})(\.\w+)+)"', rf'"{PACKAGE}.\1"', text)


def _imported(tree: ast.AST, *, in_functions: bool = True) -> Iterator[str]:
    """Modules that a module imports, and names in them, but not those that only its types need."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if not in_functions:
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
                for each in otherwise:
                    yield from _imported(each, in_functions=in_functions)
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{name.name}" for name in names)
            case _:
                yield from _imported(node, in_functions=in_functions)


def _path(module: str) -> Path | None:
    """File of a module; None: it is a name within one, or a folder without a file."""
    path = CHECKOUT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _information(version: str) -> Iterator[tuple[str, str]]:
    """Files of the distribution's information (https://packaging.python.org/specifications/)."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    versions = {re.split(r"[<>=]", text)[0]: text for text in [*extras, *project["dependencies"]]}
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {PACKAGE.replace('_', '-')}",
        f"Version: {version}",
        "Summary: Archives of plantlog in a notebook: samples, curves, gaps and questions, without a database",
        f"License-Expression: {project['license']}",
        *(f"License-File: {name}" for name in project["license-files"]),
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {versions[name]}" for name in REQUIRED),
    ]
    for name in OPTIONAL:
        lines += [f"Provides-Extra: {name}", f'Requires-Dist: {versions[name]}; extra == "{name}"']
    yield "METADATA", "\n".join(lines) + "\n"
    yield "WHEEL", "Wheel-Version: 1.0\nGenerator: plantlog\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    for name in project["license-files"]:
        yield f"licenses/{name}", (CHECKOUT / name).read_text(encoding="utf-8")


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    typer.run(make)
