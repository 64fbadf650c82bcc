"""The rules, as promtool sees them, and Grafana's, which say the same."""

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
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from ingest import supplies
from ingest.config.model import HealthOptions
from ingest.errors import OperationError
from ops.deployment import Running
from ops.paths import CHECKOUT, State
from ops.prometheus.alerts import ALERTS, RECORDS
from ops.prometheus.render import GRAFANA, RULES, files
from ops.prometheus.targets import targets
from ops.prometheus.yaml import Node, dump

FOLDER = CHECKOUT / "ops" / "prometheus"


def promtool(*arguments: str) -> str:
    program = shutil.which("promtool")
    assert program is not None, "promtool is missing: apt-get install prometheus"
    run = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd=FOLDER)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_what_is_made_from_the_alerts_is_as_they_are(path: Path) -> None:
    assert path.read_text() == files()[path], "run `python -m ops.prometheus`"


def test_a_native_prometheus_scrapes_only_what_targets_says() -> None:
    """The configuration, as a checkout has it, finds no file with targets of containers."""
    patterns = re.findall(r"^ +- (targets/\S+)$", (FOLDER / "prometheus.yml").read_text(), re.MULTILINE)
    assert patterns
    kept = subprocess.run(["git", "ls-files"], cwd=FOLDER, capture_output=True, text=True, check=True).stdout.split()
    assert [path for path in kept for pattern in patterns if fnmatch(path, pattern)] == []


def test_days_are_written_as_days() -> None:
    """humanize makes 134.9m, thousandths, of an eighth of a day."""
    for alert in ALERTS:
        assert not re.search(r"humanize }} [a-z]", alert.summary), alert.name


def test_every_folder_that_grafana_looks_for_is_there() -> None:
    there = {path.name for path in GRAFANA.parents[1].iterdir()}
    assert {"alerting", "dashboards", "datasources", "plugins"} <= there


def test_promtool_takes_configuration_and_rules() -> None:
    assert f"{len(ALERTS) + len(RECORDS)} rules found" in promtool("check", "rules", str(RULES))
    promtool("check", "config", "prometheus.yml")


def test_each_alert_fires_when_it_should_and_only_then() -> None:
    cases = (FOLDER / "rules_test.yml").read_text()
    for alert in ALERTS:
        assert f'alertname="{alert.name}"' in cases, f"{alert.name} has no case in which it fires"
    promtool("test", "rules", "rules_test.yml")


def test_rules_read_only_metrics_that_there_are() -> None:
    there = {
        sample.rstrip("_")
        for text in ((CHECKOUT / "ingest" / "metrics.py").read_text(),)
        for sample in re.findall(r'"(plantlog_\w+)"', text)
    }
    asked = {name for one in (*RECORDS, *ALERTS) for name in re.findall(r"\bplantlog_\w+", one.expr)}
    assert {name.removesuffix("_bucket") for name in asked} <= there
    recorded = {name for alert in ALERTS for name in re.findall(r"\bplantlog:\w+(?::\w+)?", alert.expr)}
    assert recorded <= {one.record for one in RECORDS}


def test_grafana_asks_the_same_of_the_same_data_source() -> None:
    """Every rule of Prometheus' file is in Grafana's: expression, time, severity and words."""
    text = GRAFANA.read_text()
    rules = text.split("      - uid: ")[1:]
    assert len(rules) == len(ALERTS)
    for rule, alert in zip(rules, ALERTS, strict=True):
        assert f"title: {alert.name}\n" in rule
        assert f"expr: {json.dumps(alert.expr)}\n" in rule
        assert f'for: "{alert.hold}"\n' in rule
        assert f"severity: {alert.severity}\n" in rule
        assert "datasourceUid: plantlog-prometheus\n" in rule
        assert f"runbook: {json.dumps(alert.runbook, ensure_ascii=False)}\n" in rule
        # Grafana has no number under $value, and none at all where the query had no answer
        assert not re.search(r"\$value\b", rule)
        assert rule.count(".Value") == rule.count("{{ with $values.A }}") == rule.count("{{ end }}")
        # Without Prometheus there is one alert, not one for each rule
        about_it = alert.name == "PlantlogNotScraped"
        assert f"execErrState: {'Error' if about_it else 'KeepLast'}\n" in rule
    uids = [rule.split("\n", 1)[0] for rule in rules]
    assert len(set(uids)) == len(uids)
    assert all(re.fullmatch(r"[a-z-]{1,40}", uid) for uid in uids)  # Grafana's limit is 40


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.recursive(
            st.text() | st.integers() | st.booleans(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=1), inner),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_scalars_that_are_not_plain_words_are_quoted(tree: dict[str, Node]) -> None:
    for line in dump(tree, "made").splitlines()[1:]:
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", line)  # what is outside of quotes
        assert re.fullmatch(r"[ ]*(?:- )*(?:[\w./-]*|\{\}|\[\]):?(?: (?:[\w./-]*|\{\}|\[\]))?", bare, re.ASCII), line


def test_words_that_yaml_takes_for_something_else_are_quoted() -> None:
    made = dump({"for": "1m", "on": "yes", "a": "null", "b": "1.5", "c": "x: y", "d": "", "e": [{}, [1, "z"]]}, "c")
    assert made.splitlines()[1:] == [
        'for: "1m"',
        '"on": "yes"',
        'a: "null"',
        'b: "1.5"',
        'c: "x: y"',
        'd: ""',
        "e:",
        "  - {}",
        "  - - 1",
        "    - z",
    ]


def test_targets_are_those_that_run(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    with pytest.raises(OperationError, match="has no appliance yet"):
        targets(state)
    state.claim()
    Running("demo", HealthOptions(host="0.0.0.0", port=9201), ("writer", "collector-modbus")).save(state)
    assert json.loads(targets(state)) == [
        {"targets": ["127.0.0.1:9203"], "labels": {"process": "writer", "plant": "demo"}},
        {"targets": ["127.0.0.1:9202"], "labels": {"process": "collector-modbus", "plant": "demo"}},
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
    certificate(tmp_path / "trusted" / "plc.pem", ends + timedelta(days=1), Encoding.PEM)
    (tmp_path / "trusted" / "broken.der").write_bytes(b"\x30\x82 not a certificate")
    supplies.measure_certificates(tmp_path, [])
    supplies.measure_disk("spool", tmp_path)
    supplies.measure_disk("absent", tmp_path / "absent")

    def value(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(name, labels)

    name = "plantlog_certificate_expiry_timestamp_seconds"
    assert value(name, certificate="own.der") == ends.timestamp()
    assert value(name, certificate="plc.pem") == ends.timestamp() + 86400
    assert value(name, certificate="broken.der") is None
    (tmp_path / "trusted" / "plc.pem").unlink()
    supplies.measure_certificates(tmp_path, [])
    assert value(name, certificate="plc.pem") is None
    assert value("plantlog_disk_bytes", folder="spool") == shutil.disk_usage(tmp_path).total
    assert value("plantlog_disk_free_bytes", folder="absent") is None
