"""``plantlog init``: what docker-compose.yml needs and nobody should invent: passwords, tokens, and a .env to edit."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from ingest.errors import OperationError
from ops.paths import CHECKOUT
from ops.postgres.cluster import DATABASE, OWNER, ROLES

_HOST = "database:5432"  # as docker-compose.yml names it
_SERVICE_USER = 10001  # whom root lets the processes run as
_BYTES = 24  # of a password, before it is written in base64

# Name, default, comment. docker-compose.yml has the same defaults.
_VARIABLES = (
    ("COMPOSE_PROFILES", "demo", "demo: with the simulator's plant. Remove it when PLANTLOG_PLANT is your own."),
    ("PLANTLOG_PLANT", "./ops/example", "The folder with the plant's configuration and tag lists ..."),
    ("PLANTLOG_CONFIG", "containers.toml", "... and the file in it."),
    ("PLANTLOG_BIND", "127.0.0.1", "Where ports are published. 0.0.0.0: to the whole network; then use a firewall."),
    ("PLANTLOG_PUSH_PORT", "8186", "Gateways push to it."),
    ("PLANTLOG_VIEWER_PORT", "9110", "The page with the dashboards; its token is secrets/viewer_token."),
    ("PLANTLOG_GRAFANA_PORT", "3000", "Grafana; user admin, password secrets/grafana_admin_password."),
    ("PLANTLOG_PROMETHEUS_PORT", "9090", "Prometheus."),
    ("PLANTLOG_DATABASE_PORT", "5432", "PostgreSQL; DSNs by role are in secrets/ (there the host is `database`)."),
    ("PLANTLOG_DATABASE_MEMORY", "4G", "The database's limit of memory ..."),
    ("PLANTLOG_DATABASE_BUFFERS", "1GB", "... of which it takes this as shared buffers: a quarter is right."),
    ("PLANTLOG_DATABASE_CPUS", "2.0", "Its limit of processor time, in cores."),
    ("PLANTLOG_PROMETHEUS_RETENTION", "30d", "How long Prometheus keeps the appliance's own metrics."),
)


def init(folder: Path, console: Console) -> None:
    """Make ``folder``/.env and ``folder``/secrets, or what is missing of them; what is there stays as it is."""
    made = [f"secrets/{name}" for name in _make_secrets(folder / "secrets")]
    made += [f".env: {name}" for name in _make_environment(folder)]
    for name in made:
        console.print(f"made {name}", highlight=False)
    if not made:
        console.print("everything is there already", highlight=False)
    option = "" if folder == CHECKOUT else f" --env-file {folder / '.env'}"
    console.print(f"Next: docker compose{option} up --build --detach", highlight=False, soft_wrap=True)


def _make_secrets(folder: Path) -> list[str]:
    """The files' names that were made. A DSN keeps the password that its role has."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = []
    for name, content in _secrets(folder).items():
        path = folder / name
        if not path.exists():
            _write(path, content())  # no line end: Telegraf would take it for a part of the secret
            made.append(name)
    _own(folder, [folder / name for name in _secrets(folder)])
    return made


def _secrets(folder: Path) -> Mapping[str, Callable[[], str]]:
    """Name → what goes into the file. Those that repeat a DSN's password come behind it."""

    def password_of(role: str) -> str:
        return urlsplit((folder / f"{role}_dsn").read_text().strip()).password or ""

    return {
        **{f"{role}_dsn": (lambda role=role: _dsn(role)) for role in ROLES},  # type: ignore[misc]
        "database_password": lambda: password_of("owner"),
        "plantlog_reader": lambda: password_of("reader"),
        "grafana_admin_password": _random,
        "smtp_password": str,  # empty: the mail server's, to be written into it
        "telegraf_token": _random,
        "viewer_token": _random,
        "webhook_secret": _random,
    }


def _dsn(role: str) -> str:
    login = OWNER if role == "owner" else f"plantlog_{role}"
    return f"postgresql://{login}:{_random()}@{_HOST}/{DATABASE}"


def _random() -> str:
    return secrets.token_urlsafe(_BYTES)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and never readable by others."""
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    partial.write_text(text)
    partial.replace(path)


def _own(folder: Path, paths: list[Path]) -> None:
    """Made by root, they belong to whom the processes run as; made by anybody else, the processes run as him."""
    if os.geteuid() == 0:
        for path in (folder, *paths):
            os.chown(path, _SERVICE_USER, _SERVICE_USER)


def _make_environment(folder: Path) -> list[str]:
    """The variables that were added to ``folder``/.env."""
    path = folder / ".env"
    text = path.read_text() if path.exists() else "# Settings of docker-compose.yml, made by `./plantlog init`.\n"
    if "\n" not in text[-1:]:
        raise OperationError(f"{path} does not end with a line end: what is added would go into its last line")
    known = {line.partition("=")[0].strip() for line in text.splitlines() if not line.lstrip().startswith("#")}
    added = [(name, value, why) for name, value, why in (*_VARIABLES, *_own_variables(folder)) if name not in known]
    if added:
        lines = "".join(f"\n# {why}\n{name}={value}\n" for name, value, why in added)
        _write(path, text + lines)
    return [name for name, _, _ in added]


def _own_variables(folder: Path) -> tuple[tuple[str, str, str], ...]:
    user, group = (_SERVICE_USER, _SERVICE_USER) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    where = "./secrets" if folder == CHECKOUT else str(folder / "secrets")
    return (
        ("PLANTLOG_SECRETS", where, "The folder with the secrets' files."),
        ("PLANTLOG_UID", str(user), "Whom plantlog's processes run as: the owner of the secrets ..."),
        ("PLANTLOG_GID", str(group), "... and his group. The image is built with both."),
    )
