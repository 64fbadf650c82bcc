"""``plantlog admin init``: create passwords, tokens and a .env for docker-compose.yml."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from core.config.token_file import hash_of
from core.errors import OperationError
from core.files import write_atomically
from core.paths import CHECKOUT
from core.servers import own_certificate
from ops.postgres.cluster import DATABASE, OWNER, ROLES

_HOST = "database:5432"  # as docker-compose.yml names it
_VERIFIED = "sslmode=verify-full&sslrootcert=/run/secrets/tls_ca"
_SERVICE_USER = 10001  # whom root lets the processes run as
_BYTES = 24  # of a password, before it is written in base64
# Certificates that a machine trusts: Debian and its kin, RHEL and its kin, openSUSE.
_TRUSTED = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")

# Name, default, comment. docker-compose.yml has the same defaults.
_VARIABLES = (
    ("COMPOSE_PROFILES", "demo", "demo: start the simulated plant. Remove it when PLANTLOG_PLANT is your own."),
    ("PLANTLOG_PLANT", "./ops/example", "Folder of the configuration and the tag lists."),
    ("PLANTLOG_CONFIG", "containers.toml", "Configuration file in that folder."),
    ("PLANTLOG_BACKUP", "", "Folder for [backup], mounted at /mnt/backup; it must belong to PLANTLOG_UID."),
    ("PLANTLOG_ARCHIVE", "", "Folder for [archive], mounted at /mnt/archive; it must belong to PLANTLOG_UID."),
    ("PLANTLOG_BIND", "127.0.0.1", "Address on which ports are published. With 0.0.0.0, use a firewall."),
    ("PLANTLOG_PUSH_PORT", "8186", "Port of the push endpoint."),
    ("PLANTLOG_VIEWER_PORT", "9110", "Port of the viewer. `plantlog user add` makes its users."),
    ("PLANTLOG_GRAFANA_PORT", "3000", "Port of Grafana; user admin, password in secrets/grafana_admin_password."),
    ("PLANTLOG_PROMETHEUS_PORT", "9090", "Port of Prometheus."),
    ("PLANTLOG_DATABASE_PORT", "5432", "Port of PostgreSQL; DSNs by role are in secrets/ (with the host `database`)."),
    ("PLANTLOG_DATABASE_MEMORY", "4G", "Memory limit of the database."),
    ("PLANTLOG_DATABASE_BUFFERS", "1GB", "shared_buffers of the database: a quarter of its memory."),
    ("PLANTLOG_DATABASE_CPUS", "2.0", "CPU limit of the database, in cores."),
    ("PLANTLOG_PROMETHEUS_RETENTION", "30d", "Retention of Prometheus."),
)


def init(folder: Path, console: Console) -> None:
    """Create ``folder``/.env and ``folder``/secrets, or what is missing. Existing passwords and settings are kept."""
    lines = [f"created secrets/{name}" for name in _create_secrets(folder / "secrets")]
    lines += [f"created .env: {name}" for name in _create_environment(folder)]
    for line in lines:
        console.print(line, highlight=False)
    if not lines:
        console.print("nothing to do; all files exist", highlight=False)
    option = "" if folder == CHECKOUT else f" --env-file {folder / '.env'}"
    console.print(f"Next: docker compose{option} up --build --detach", highlight=False, soft_wrap=True)


def _create_secrets(folder: Path) -> list[str]:
    """The files' names that were made. A DSN keeps the password that its role has."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    created = []
    for name, content in _secrets(folder).items():
        path = folder / name
        if not path.exists():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_atomically(path, content(), 0o600)  # Telegraf takes a line end for a part of its secret
            created.append(name)
    authority = folder / "tls_ca", folder / "tls_ca_key"
    if not authority[0].exists():
        own_certificate.make_authority(*authority)
        created += [path.name for path in authority]
    _chown(folder, folder / "tokens", *(folder / name for name in _secrets(folder)), *authority)
    return created


def _secrets(folder: Path) -> Mapping[str, Callable[[], str]]:
    """Name → content of the file. Files that repeat the content of another one come after it."""

    def password_of(role: str) -> str:
        return urlsplit((folder / f"{role}_dsn").read_text().strip()).password or ""

    return {
        **{f"{role}_dsn": (lambda role=role: _dsn(role)) for role in ROLES},  # type: ignore[misc]
        "database_password": lambda: password_of("owner"),
        "plantlog_reader": lambda: password_of("reader"),
        "backup_key": str,  # empty: for SFTP or S3, to be written into it
        "backup_passphrase": _random,
        "grafana_admin_password": _random,
        "smtp_password": str,  # empty: the mail server's, to be written into it
        "telegraf_token": _random,
        "tokens/telegraf": lambda: f"{hash_of((folder / 'telegraf_token').read_text().strip(), 'by plantlog')}\n",
        "webhook_secret": _random,
    }


def _dsn(role: str) -> str:
    login = OWNER if role == "owner" else f"plantlog_{role}"
    return f"postgresql://{login}:{_random()}@{_HOST}/{DATABASE}?{_VERIFIED}"


def _random() -> str:
    return secrets.token_urlsafe(_BYTES)


def _chown(*paths: Path) -> None:
    """Give files that root makes to the user of the processes; otherwise they run as the user who makes the files."""
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, _SERVICE_USER, _SERVICE_USER)


def _create_environment(folder: Path) -> list[str]:
    """The variables that were added to ``folder``/.env."""
    path = folder / ".env"
    text = path.read_text() if path.exists() else "# Settings of docker-compose.yml, made by `./plantlog admin init`.\n"
    if "\n" not in text[-1:]:
        raise OperationError(f"{path} does not end with a newline; add one first")
    names = {line.partition("=")[0].strip() for line in text.splitlines() if not line.lstrip().startswith("#")}
    added = [
        (name, value, comment) for name, value, comment in (*_VARIABLES, *_user_variables(folder)) if name not in names
    ]
    if added:
        lines = "".join(f"\n# {comment}\n{name}={value}\n" for name, value, comment in added)
        write_atomically(path, text + lines, 0o600)
    return [name for name, _, _ in added]


def _user_variables(folder: Path) -> tuple[tuple[str, str, str], ...]:
    user, group = (_SERVICE_USER, _SERVICE_USER) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    secrets_folder = "./secrets" if folder == CHECKOUT else str(folder / "secrets")
    trusted = next((path for path in _TRUSTED if Path(path).exists()), "/dev/null")
    return (
        ("PLANTLOG_SECRETS", secrets_folder, "Folder of the secrets."),
        ("PLANTLOG_UID", str(user), "User id of the processes; it must own the secrets."),
        ("PLANTLOG_GID", str(group), "Group id of the processes. The image is built with both ids."),
        ("PLANTLOG_CA", trusted, "Certificates to trust while images are built. /dev/null: those of pip and uv."),
    )
