"""The compose files, as Compose itself understands them: no engine is needed."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from rich.console import Console

from core.config import processes
from core.config.load import load
from core.config.model import Plant
from core.config.processes import processes_of
from core.paths import CHECKOUT, EXAMPLE
from ops.containers import healthy
from ops.containers.init import init
from ops.postgres.binaries import Binaries
from ops.postgres.cluster import ROLES
from ops.postgres.mounted import _PEM, ARCHIVE, REPOSITORY, MountedCluster
from ops.postgres.verified import unverified_hosts
from tests import docs
from tests.docker import FILES, Docker, client

OFFICIAL = ("-f", "docker-compose.yml")
ONE_SHOT = {"certificate", "dashboards", "migrate", "restore", "trust"}
OF_A_REGISTRY = {"grafana", "telegraf"}
OWN_IMAGES = {"plantlog", "plantlog-backup"}  # they have a health check
DOCKERFILE = (CHECKOUT / "ops" / "containers" / "image" / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def docker() -> Docker:
    return client()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    init(folder, Console(quiet=True))
    return folder / ".env"


@pytest.fixture(scope="module")
def official(docker: Docker, environment: Path) -> dict[str, Any]:
    """docker-compose.yml with all its profiles."""
    return docker.described("--env-file", str(environment), "--profile", "*", files=OFFICIAL)


@pytest.fixture(scope="module")
def debian(docker: Docker, environment: Path) -> dict[str, Any]:
    return docker.described("--env-file", str(environment), "--profile", "*")


@pytest.fixture(scope="module")
def plant(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Plant:
    """The plant of containers.toml with its examples, and its secrets where `init` made them."""
    folder = tmp_path_factory.mktemp("plant")
    shutil.copytree(EXAMPLE.parent, folder, dirs_exist_ok=True)
    config = folder / "containers.toml"
    text = re.sub(r"(?m)^# (?=\[|\w+ = )", "", config.read_text())
    config.write_text(text.replace("/run/secrets", str(environment.parent / "secrets")))
    return load(config)


def server_settings() -> dict[str, str]:
    """The file of the database's image: setting → value."""
    text = (CHECKOUT / "ops" / "containers" / "postgresql.conf").read_text()
    return dict(re.findall(r"(?m)^(\w+) = '?(.*?)'?$", text))


def image_environment() -> dict[str, str]:
    """The variables that the database's image has, and with it the one that backs up."""
    return dict(re.findall(r"(?m)^(?:ENV|   ) (\w+)=(\S+)", DOCKERFILE))


def test_every_part_is_a_service(official: dict[str, Any], plant: Plant) -> None:
    wanted = {"database", *processes_of(plant), "simulator", "prometheus", *OF_A_REGISTRY, *ONE_SHOT}
    assert set(official["services"]) == wanted


def test_images_are_pinned_by_version(official: dict[str, Any]) -> None:
    for name, service in official["services"].items():
        image, _, tag = service["image"].partition(":")
        assert re.match(r"v?\d+\.\d+\.\d+", tag) or image.partition("-")[0] == "plantlog", name
    assert re.findall(r"(?m)^ARG DEBIAN=(.*)", DOCKERFILE) == ["docker.io/library/debian:13-slim"]


def test_images_of_a_registry_can_be_pinned_by_digest(
    docker: Docker, official: dict[str, Any], environment: Path, tmp_path: Path
) -> None:
    [block] = [block.text for block in docs.blocks("text") if "PLANTLOG_DEBIAN_IMAGE=" in block.text]
    pins = {name: f"{value.partition('@')[0]}@sha256:{number:064}" for number, (name, value) in enumerate(
        re.findall(r"(?m)^(\w+_IMAGE)=(\S+)$", block))}  # fmt: skip
    file = tmp_path / ".env"
    file.write_text(environment.read_text() + "".join(f"{name}={pin}\n" for name, pin in pins.items()))
    for files in (OFFICIAL, FILES):
        services = docker.described("--env-file", str(file), "--profile", "*", files=files)["services"]
        bases = {service["build"]["args"]["DEBIAN"] for service in services.values() if "build" in service}
        assert bases == {pins["PLANTLOG_DEBIAN_IMAGE"]}
    services = docker.described("--env-file", str(file), "--profile", "*", files=OFFICIAL)["services"]
    assert _of_a_registry(services) == {*pins.values()} - bases
    unpinned = {pin.partition("@")[0] for pin in pins.values()}
    assert unpinned == _of_a_registry(official["services"]) | {
        official["services"]["writer"]["build"]["args"]["DEBIAN"]
    }


def _of_a_registry(services: dict[str, Any]) -> set[str]:
    """Images that are not built."""
    return {service["image"] for service in services.values() if not service["image"].startswith("plantlog")}


def test_containers_have_minimal_privileges(official: dict[str, Any]) -> None:
    for name, service in official["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert ("cap_add" in service) == (name == "database"), name
        assert "privileged" not in service, name
        limits = service["deploy"]["resources"]["limits"]
        assert {"cpus", "memory", "pids"} <= limits.keys(), name
        assert service["restart"] == ("no" if name in ONE_SHOT else "unless-stopped"), name
        assert "test" in service["healthcheck"] or service["image"].partition(":")[0] in OWN_IMAGES, name
    assert "HEALTHCHECK" in DOCKERFILE


def test_nothing_is_published_beyond_loopback(official: dict[str, Any], plant: Plant) -> None:
    published = {
        name: [(port["host_ip"], port["published"]) for port in service["ports"]]
        for name, service in official["services"].items()
        if "ports" in service
    }
    assert published == {
        "collector-push": [("127.0.0.1", "8186")],
        "database": [("127.0.0.1", "5432")],
        "grafana": [("127.0.0.1", "3000")],
        "prometheus": [("127.0.0.1", "9090")],
        "viewer": [("127.0.0.1", "9110")],
    }
    # What plantlog publishes is HTTPS; health pages and metrics are not published.
    assert (plant.push.scheme, plant.viewer.scheme, plant.health.scheme) == ("https", "https", "http")
    telegraf = official["services"]["telegraf"]
    address = urlsplit(telegraf["environment"]["PLANTLOG_PUSH"])
    assert address.scheme == "https"
    assert address.hostname in plant.tls.names
    assert telegraf["environment"]["PLANTLOG_CA"].rpartition("/")[2] in {
        secret["source"] for secret in telegraf["secrets"]
    }


def test_whatever_uses_the_database_verifies_it(official: dict[str, Any], environment: Path) -> None:
    services = official["services"]
    database = services["database"]
    settings = server_settings()
    assert settings["ssl"] == "on"
    assert settings["ssl_cert_file"] == settings["ssl_key_file"] == str(_PEM)
    assert settings["hba_file"] == "/etc/postgresql/pg_hba.conf"
    logins = CHECKOUT / "ops" / "containers" / "pg_hba.conf"
    kinds = [line.split()[0] for line in logins.read_text().splitlines() if not line.startswith("#")]
    assert kinds == ["local", "hostssl"]
    assert database["depends_on"]["certificate"]["condition"] == "service_completed_successfully"
    # Only what issues the certificate writes to its volume.
    issuing = {"certificate", "maintenance", "migrate"}
    mounted = {
        name: one.get("read_only", False)
        for name, service in services.items()
        for one in service.get("volumes", ())
        if one["target"] == str(_PEM.parent)
    }
    assert mounted == {**dict.fromkeys({*issuing, "restore"}, False), "database": True}
    secrets = {name: {entry["source"] for entry in service.get("secrets", ())} for name, service in services.items()}
    assert {name for name, sources in secrets.items() if "tls_ca_key" in sources} == issuing
    # `restore` sees the folder of all secrets.
    using = {name for name, sources in secrets.items() if any("dsn" in source for source in sources)} - {"restore"}
    assert {name for name, sources in secrets.items() if "tls_ca" in sources} == {*using, "grafana"}
    for role in ROLES:
        dsn = (environment.parent / "secrets" / f"{role}_dsn").read_text()
        assert unverified_hosts(dsn) == [], role
        assert parse_qs(urlsplit(dsn).query)["sslrootcert"] == ["/run/secrets/tls_ca"]
    assert services["grafana"]["environment"]["PLANTLOG_DATABASE_SSLMODE"] == "verify-full"


def test_no_secret_is_in_a_compose_file_or_environment(official: dict[str, Any], environment: Path) -> None:
    secrets = {
        path.name: path.read_text().strip() for path in (environment.parent / "secrets").iterdir() if path.is_file()
    }
    assert {Path(one["file"]).name for name, one in official["secrets"].items() if name != "ca"} == set(secrets)
    output = str(official) + environment.read_text()
    assert {name for name, secret in secrets.items() if not secret} == {"backup_key", "smtp_password"}
    for name, secret in secrets.items():
        assert not secret or secret not in output, name
        assert (environment.parent / "secrets" / name).stat().st_mode & 0o777 == 0o600


def test_compose_files_differ_only_in_images(official: dict[str, Any], debian: dict[str, Any]) -> None:
    assert set(debian["services"]) == set(official["services"])
    for name, service in official["services"].items():
        other = debian["services"][name]
        if name in OF_A_REGISTRY:
            assert other.pop("profiles") == ["registry"]
            assert other == service
            continue
        differs = {key for key in service.keys() | other.keys() if service.get(key) != other.get(key)}
        assert differs <= {"image", "build", "pull_policy"}, name
    for part in ("volumes", "secrets", "networks", "name"):
        assert debian[part] == official[part], part


def test_debian_compose_file_uses_no_registry(docker: Docker, environment: Path) -> None:
    described = docker.described("--env-file", str(environment))
    for name, service in described["services"].items():
        assert service["pull_policy"] == ("build" if "build" in service else "never"), name
    built = {service["image"] for service in described["services"].values() if "build" in service}
    assert {service["image"] for service in described["services"].values()} == built
    assert not OF_A_REGISTRY & set(described["services"])
    for name, service in described["services"].items():
        if "build" in service:
            arguments = service["build"].get("args", {})
            assert arguments["DEBIAN"] == "plantlog-debian:13", name


def test_what_backs_up_sees_what_the_database_sees(
    official: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, *others = (official["services"][name] for name in ("database", "maintenance", "migrate", "restore"))
    data = Path(image_environment()["PGDATA"])
    assert Path(image_environment()["PLANTLOG_DATABASE"]) == data
    wanted = {str(data.parent), str(REPOSITORY)}
    mounted = [volume for volume in database["volumes"] if volume["target"] in wanted]
    for service in others:
        assert [volume for volume in service["volumes"] if volume["target"] in wanted] == mounted
    assert {mount["target"] for mount in mounted} == wanted
    monkeypatch.setattr("os.geteuid", lambda: 10001)
    cluster = MountedCluster(tmp_path, Binaries(Path("/")), data)
    condition = f"test ! -e {cluster.archiving}"
    assert server_settings()["archive_command"] == f"{condition} || {cluster.archive_command} archive-push %p"


def test_only_what_archives_may_write_to_the_archive(official: dict[str, Any]) -> None:
    mounted = {
        name: volume.get("read_only", False)
        for name, service in official["services"].items()
        for volume in service.get("volumes", ())
        if volume["target"] == str(ARCHIVE)
    }
    assert mounted == {"maintenance": False, "migrate": False, "viewer": True}


def test_processes_have_the_arguments_that_up_gives_them(official: dict[str, Any], plant: Plant) -> None:
    assert 'ENTRYPOINT ["python", "-P", "-m"]' in DOCKERFILE
    for name in processes_of(plant):
        service = official["services"][name]
        assert service["command"][-2:] == ["--state", "/var/lib/plantlog"], name
        assert service["hostname"] == name
        assert service["entrypoint"] is None, name
        # Its health page is asked where the configuration puts it, and scraped there.
        port = processes.port(name, plant.health)
        assert "test" not in service["healthcheck"], name
        live = "" if name in ("writer", "collector-push") else "/live"
        assert healthy.page(name) == f"http://127.0.0.1:{port}/health{live}"
        assert plant.health.plain_http
        scraped = (CHECKOUT / "ops" / "prometheus" / "containers" / "plantlog.yml").read_text()
        assert f'- targets: ["{name}:{port}"]\n  labels: {{process: {name},' in scraped


def test_the_plant_in_containers_is_the_example(official: dict[str, Any]) -> None:
    """Only addresses differ, and Telegraf pushes."""
    with EXAMPLE.open("rb") as file:
        native = tomllib.load(file)
    with EXAMPLE.with_name("containers.toml").open("rb") as file:
        contained = tomllib.load(file)
    (telegraf,) = [source for source in contained["source"] if source["name"] == "telegraf"]
    contained["source"].remove(telegraf)
    for source in native["source"]:
        source["address"] = source["address"].replace("127.0.0.1", "simulator")
    assert contained["source"] == native["source"]
    with (CHECKOUT / "ops" / "telegraf" / "source.toml").open("rb") as file:
        documented = tomllib.load(file)["source"][0]
    assert {**telegraf, "token_file": ""} == {**documented, "token_file": ""}


def test_grafana_and_telegraf_get_their_variables(official: dict[str, Any]) -> None:
    grafana, telegraf = official["services"]["grafana"], official["services"]["telegraf"]
    (folder,) = [volume["target"] for volume in grafana["volumes"] if volume["source"] == "dashboards"]
    assert grafana["environment"]["PLANTLOG_DASHBOARDS"] == folder
    dashboards = official["services"]["dashboards"]
    assert [volume["target"] for volume in dashboards["volumes"]] == dashboards["command"][-1:]
    asked: set[str] = set()
    for path in (CHECKOUT / "dashboards" / "provisioning").rglob("*.yaml"):
        settings = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
        asked |= set(re.findall(r"\$([A-Z][A-Z_]+)", settings))
        for secret in re.findall(r"/run/secrets/(\w+)", settings):
            assert secret in {entry["source"] for entry in grafana["secrets"]}, path
    assert asked <= grafana["environment"].keys()
    config = (CHECKOUT / "ops" / "telegraf" / "telegraf.conf").read_text()
    mounted = {entry.get("target", entry["source"]).rpartition("/")[2] for entry in telegraf["secrets"]}
    assert set(re.findall(r"@\{plantlog:(\w+)\}", config)) | {"tls_ca"} == mounted
    variables = {name for name in re.findall(r"\$\{(\w+):-", config) if name != "PLANTLOG_SECRETS"}
    assert variables == {name for name in telegraf["environment"] if name.startswith("PLANTLOG_")}
