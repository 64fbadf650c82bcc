"""Rules of Prometheus, the metrics they read, and their measurement."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from prometheus_client import REGISTRY

from core.certificates.expiry import certificate_files, measure_certificates
from core.config.model import HealthOptions
from core.errors import OperationError
from core.paths import CHECKOUT, State
from ingest.run.process import measure_disk
from ops.deployment import Running, scrape_targets
from tests.prometheus_rules import FOLDER, RECORDS, TEXT


def test_native_prometheus_scrapes_only_the_listed_targets() -> None:
    """The configuration, as a checkout has it, finds no file with targets of containers."""
    patterns = re.findall(r"^ +- (targets/\S+)$", (FOLDER / "prometheus.yml").read_text(), re.MULTILINE)
    assert patterns
    kept = subprocess.run(["git", "ls-files"], cwd=FOLDER, capture_output=True, text=True, check=True).stdout.split()
    assert [path for path in kept for pattern in patterns if fnmatch(path, pattern)] == []


def test_retention_is_written_in_days() -> None:
    """humanize makes 134.9m, thousandths, of an eighth of a day."""
    assert not re.search(r"humanize }} [a-z]", TEXT)


def test_every_provisioning_folder_of_grafana_exists() -> None:
    there = {path.name for path in (CHECKOUT / "dashboards" / "provisioning").iterdir()}
    assert {"alerting", "dashboards", "datasources", "plugins"} <= there


def test_each_alert_has_severity_summary_and_action() -> None:
    for rule in TEXT.split("- alert: ")[1:]:
        assert re.search(r"^ +labels: \{severity: (warning|critical)\}$", rule, re.MULTILINE), rule
        names = re.findall(r"^ +(summary|description|runbook): ", rule, re.MULTILINE)
        assert names == ["summary", "description", "runbook"] or "annotations: *certificate" in rule, rule


def test_rules_use_only_existing_metrics() -> None:
    there = set(re.findall(r'"(plantlog_\w+)"', (CHECKOUT / "core" / "metrics.py").read_text()))
    read = set(re.findall(r"\bplantlog_\w+", TEXT))
    assert {name.removesuffix("_bucket") for name in read} <= there
    assert set(re.findall(r"\bplantlog:\w+(?::\w+)?", TEXT)) == set(RECORDS)


def test_targets_are_the_running_processes(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    with pytest.raises(OperationError, match="has no appliance yet"):
        scrape_targets(state)
    state.claim()
    for options, more in (
        (HealthOptions(port=9201), {}),
        (HealthOptions(host="0.0.0.0", port=9201, plain_http=True), {}),
        (HealthOptions(host="0.0.0.0", port=9201), {"__scheme__": "https"}),
    ):
        Running("demo", options, ("writer", "collector-modbus")).save(state)
        assert json.loads(scrape_targets(state)) == [
            {"targets": ["127.0.0.1:9203"], "labels": {"process": "writer", "plant": "demo", **more}},
            {"targets": ["127.0.0.1:9202"], "labels": {"process": "collector-modbus", "plant": "demo", **more}},
        ]


def certificate(path: Path, ends: datetime, encoding: Encoding) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "plc")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(ends - timedelta(days=365))
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(made.public_bytes(encoding))


def test_certificates_and_disk_are_measured(tmp_path: Path) -> None:
    ends = datetime(2027, 3, 9, 12, tzinfo=UTC)
    certificate(tmp_path / "own.der", ends, Encoding.DER)
    certificate(tmp_path / "trusted" / "certs" / "plc.pem", ends + timedelta(days=1), Encoding.PEM)
    (tmp_path / "trusted" / "certs" / "broken.der").write_bytes(b"\x30\x82 not a certificate")
    measure_certificates(certificate_files(tmp_path, []))
    measure_disk(tmp_path)
    measure_disk(tmp_path / "absent")

    def value(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(name, labels)

    name = "plantlog_certificate_expiry_timestamp_seconds"
    assert value(name, certificate="own.der") == ends.timestamp()
    assert value(name, certificate="plc.pem") == ends.timestamp() + 86400
    assert value(name, certificate="broken.der") is None
    (tmp_path / "trusted" / "certs" / "plc.pem").unlink()
    measure_certificates(certificate_files(tmp_path, []))
    assert value(name, certificate="plc.pem") is None
    assert value("plantlog_disk_bytes", folder="spool") == shutil.disk_usage(tmp_path).total
    assert value("plantlog_disk_free_bytes", folder="absent") is None
