"""A Grafana of this machine with our provisioning, beside a running appliance."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from dashboards.fill import FOLDER, write
from tests.e2e.appliance import Appliance
from tests.ports import free_ports
from tests.waiting import until_sync

VARIABLE = "PLANTLOG_TEST_GRAFANA"
WITHOUT = f"{VARIABLE} names no Grafana: its home (with bin/, conf/ and public/), or its program in there"
PASSWORD = "of-these-tests"
_START_SECONDS = 300  # the first start makes Grafana's own database


@dataclass(frozen=True, slots=True)
class Grafana:
    """One that answers at ``url``."""

    url: str
    log: Path

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Response of its API to the administrator: GET, or POST with a body. Other statuses fail the test."""
        login = b64encode(f"admin:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self.url + path, data, headers)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.code} {error.read().decode(errors='replace')}") from error

    def errors(self) -> list[dict[str, Any]]:
        """The lines of its log that are errors."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        body = [json.loads(line) for line in lines]
        return [one for one in body if one.get("level") in ("error", "eror", "critical", "crit")]

    def answers(self) -> bool:
        """Return whether it has started."""
        try:
            return self.ask("/api/health")["database"] == "ok"  # type: ignore[no-any-return]
        except (OSError, AssertionError, ValueError):
            return False


def program() -> tuple[Path, Path] | None:
    """Grafana's program and home, as the variable names them."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    path = Path(named).resolve()
    home = path if path.is_dir() else path.parents[1]
    found = next((one for one in (path, home / "bin" / "grafana") if one.is_file()), None)
    assert found is not None and (home / "conf" / "defaults.ini").is_file(), f"{path}: {WITHOUT}"
    return found, home


def _provisioning(folder: Path, password: str) -> Path:
    """Our files as they are, but with the password where it is here."""
    secret = folder / "reader"
    secret.write_text(password)
    copy = folder / "provisioning"
    shutil.copytree(FOLDER / "provisioning", copy)
    source = copy / "datasources" / "plantlog.yaml"
    text = source.read_text()
    assert "/run/secrets/plantlog_reader" in text
    source.write_text(text.replace("/run/secrets/plantlog_reader", str(secret)))
    return copy


@contextmanager
def provisioned(appliance: Appliance, prometheus: str, folder: Path) -> Iterator[Grafana]:
    """A Grafana that has started, with its data in ``folder`` and nothing from the network."""
    found = program()
    assert found is not None, WITHOUT
    binary, home = found
    database = urlsplit((appliance.root / "secrets" / "reader.dsn").read_text().strip())
    port = free_ports(1)
    settings = {
        "PATHS_DATA": folder / "data",
        "PATHS_LOGS": folder / "logs",
        "PATHS_PLUGINS": folder / "plugins",
        "PATHS_PROVISIONING": _provisioning(folder, unquote(database.password or "")),
        "SERVER_HTTP_ADDR": "127.0.0.1",
        "SERVER_HTTP_PORT": port,
        "DATABASE_WAL": "true",  # else readers of its SQLite wait for writers, and give up
        "SECURITY_ADMIN_PASSWORD": PASSWORD,
        "SECURITY_DISABLE_GRAVATAR": "true",
        "ANALYTICS_REPORTING_ENABLED": "false",
        "ANALYTICS_CHECK_FOR_UPDATES": "false",
        "ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "NEWS_NEWS_FEED_ENABLED": "false",
        "PLUGINS_PLUGIN_ADMIN_ENABLED": "false",
        "PLUGINS_PREINSTALL_DISABLED": "true",
        "LOG_MODE": "console",
        "LOG_CONSOLE_FORMAT": "json",
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GF_")}
    environment |= {f"GF_{name}": str(value) for name, value in settings.items()}
    environment |= {
        "PLANTLOG_DASHBOARDS": str(folder / "dashboards"),
        "PLANTLOG_DATABASE_HOST": str(database.hostname),
        "PLANTLOG_DATABASE_PORT": str(database.port),
        "PLANTLOG_DATABASE_NAME": database.path.lstrip("/"),
        "PLANTLOG_DATABASE_SSLMODE": "disable",
        "PLANTLOG_PROMETHEUS": prometheus,
    }
    write(folder / "dashboards")
    (folder / "plugins").mkdir()
    log = folder / "log"
    with log.open("w") as log_file:
        command = [str(binary), "server", "--homepath", str(home)]
        server = subprocess.Popen(command, env=environment, cwd=home, stdout=log_file, stderr=subprocess.STDOUT)
        grafana = Grafana(f"http://127.0.0.1:{port}", log)
        try:
            until_sync(lambda: grafana.answers() or server.poll() is not None, _START_SECONDS)
            assert server.poll() is None, log.read_text()[-5000:]
            yield grafana
        finally:
            server.terminate()
            server.wait(60)
