"""The state of a checkout that a release is made of: its version, its changelog, its tags."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from core.errors import OperationError
from ops.postgres.packages import run

CHANGELOG, PROJECT = "CHANGELOG.md", "pyproject.toml"
_VERSION = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"  # https://semver.org; of those before it, none is released
_SECTION = re.compile(r"^## \[([^]]+)\](?: - (\d{4}-\d\d-\d\d))?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PROGRAMS = {"git": "git", "go": "golang-go", "apt-get": "apt", "dpkg-deb": "dpkg"}


@dataclass(frozen=True, slots=True)
class Section:
    """A version in the changelog. The first one is ``Unreleased``, without a date."""

    version: str
    day: date | None
    text: str


def sections(checkout: Path) -> list[Section]:
    """The changelog, newest first."""
    text = (checkout / CHANGELOG).read_text(encoding="utf-8")
    return [
        Section(version, date.fromisoformat(day) if day else None, content.strip())
        for version, day, content in _SECTION.findall(text)
    ]


def is_released(checkout: Path, version: str, today: date) -> bool:
    """Return whether the checked-out commit is this release already, so that its files can only be made again.

    Raises OperationError where it is not, and can't become it.
    """
    if (numbers := re.fullmatch(_VERSION, version)) is None:
        raise OperationError(f"VERSION: found {version!r}; legal: three numbers, such as 1.1.0")
    if missing := list(_missing(checkout)):
        raise OperationError("\n".join(missing))
    if changes := git(checkout, "status", "--porcelain"):
        raise OperationError(f"{checkout} differs from its commit: commit these, or remove them\n{changes}")
    tag = f"v{version}"
    if git(checkout, "tag", "--list", tag):
        if git(checkout, "rev-parse", f"{tag}^{{commit}}") == git(checkout, "rev-parse", "HEAD"):
            return True
        raise OperationError(f"the tag {tag} exists: check it out to make its files again, or name a newer version")
    project = tomllib.loads((checkout / PROJECT).read_text(encoding="utf-8"))["project"]
    if _numbers(numbers) <= _numbers(re.fullmatch(_VERSION, project["version"])):
        raise OperationError(f"VERSION: found {version}; legal: one newer than {project['version']}, as {PROJECT} has")
    _check(sections(checkout), project["version"], today)
    return False


def _missing(checkout: Path) -> Iterator[str]:
    """Everything that a release requires of the machine and is not there: some takes minutes to install."""
    for program, package in _PROGRAMS.items():
        if shutil.which(program) is None:
            yield f"{program} is not installed: it comes with the package {package}"
    if find_spec("cyclonedx_py") is None:
        yield "the development tools are not installed: run `./plantlog test --version`"
    if shutil.which("git"):
        try:
            git(checkout, "var", "GIT_COMMITTER_IDENT")
        except OperationError:
            yield "git does not know who commits: run `git config user.name NAME` and `git config user.email ADDRESS`"


def _check(changes: list[Section], version: str, today: date) -> None:
    """Raises OperationError where the changelog has nothing to release, or is not in order."""
    found = [one.version for one in changes[:2]]
    if found != ["Unreleased", version]:
        raise OperationError(f"{CHANGELOG}: found {found}; legal: it begins with [Unreleased], and [{version}] follows")
    unreleased, last = changes[:2]
    if not unreleased.text:
        raise OperationError(f"{CHANGELOG}: found nothing below [Unreleased]; legal: what this release changes")
    if last.day is None or last.day > today:
        raise OperationError(f"{CHANGELOG}: found {last.day} as the date of [{version}]; legal: at most {today}, today")


def _numbers(version: re.Match[str] | None) -> tuple[int, ...]:
    return tuple(map(int, version.groups())) if version else ()


def git(checkout: Path, *arguments: str) -> str:
    """Output of git, there, without the last end of line. Raises OperationError."""
    return run(["git", *arguments], cwd=checkout).rstrip("\n")
