"""From the alerts to the files that Prometheus and Grafana read; ``python -m ops.prometheus`` writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ops.paths import CHECKOUT
from ops.prometheus.alerts import ALERTS, RECORDS, Alert
from ops.prometheus.yaml import Node, dump

RULES = CHECKOUT / "ops" / "prometheus" / "rules" / "plantlog.yml"
GRAFANA = CHECKOUT / "dashboards" / "provisioning" / "alerting" / "plantlog.yaml"

_MADE = "Made by `python -m ops.prometheus` from ops/prometheus/alerts.py: change that, and run it."
_DATA_SOURCE = "plantlog-prometheus"
_FOLDER = "plantlog"
_OF_PROMETHEUS = "PlantlogNotScraped"  # the alert that is about Prometheus itself
_LOOK_SECONDS = 600  # how far back Grafana's query may look; ranges in the query are its own


def files() -> dict[Path, str]:
    """Every file that is made from the alerts, and its text."""
    return {RULES: dump(_prometheus(), _MADE), GRAFANA: dump(_grafana(), _MADE)}


def _prometheus() -> Mapping[str, Node]:
    """https://prometheus.io/docs/prometheus/latest/configuration/recording_rules/"""
    records: list[Node] = [{"record": one.record, "expr": one.expr} for one in RECORDS]
    alerts: list[Node] = [_prometheus_rule(alert) for alert in ALERTS]
    return {"groups": [_group("plantlog-records", records), _group("plantlog-alerts", alerts)]}


def _group(name: str, rules: list[Node]) -> Node:
    return {"name": name, "rules": rules}


def _prometheus_rule(alert: Alert) -> Mapping[str, Node]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.hold,
        "labels": {"severity": alert.severity},
        "annotations": _annotations(alert),
    }


def _annotations(alert: Alert) -> Mapping[str, str]:
    return {"summary": alert.summary, "description": alert.description, "runbook": alert.runbook}


def _grafana() -> Mapping[str, Node]:
    """https://grafana.com/docs/grafana/latest/alerting/set-up/provision-alerting-resources/file-provisioning/"""
    group: Mapping[str, Node] = {
        "orgId": 1,
        "name": "plantlog",
        "folder": _FOLDER,
        "interval": "1m",
        "rules": [_grafana_rule(alert) for alert in ALERTS],
    }
    return {"apiVersion": 1, "groups": [group]}


def _grafana_rule(alert: Alert) -> Mapping[str, Node]:
    """A rule that fires for each series of the query, whatever its value: as Prometheus has it."""
    return {
        "uid": re.sub(r"(?<!^)(?=[A-Z])", "-", alert.name).lower(),
        "title": alert.name,
        "condition": "fires",
        "data": [
            {
                "refId": "A",
                "relativeTimeRange": {"from": _LOOK_SECONDS, "to": 0},
                "datasourceUid": _DATA_SOURCE,
                "model": {"refId": "A", "expr": alert.expr, "instant": True, "range": False},
            },
            _expression("any", {"type": "math", "expression": "is_number($A) || is_nan($A) || is_inf($A)"}),
            _expression(
                "fires",
                {
                    "type": "threshold",
                    "expression": "any",
                    "conditions": [{"evaluator": {"type": "gt", "params": [0]}}],
                },
            ),
        ],
        "noDataState": "OK",  # no series: nothing fires
        # With Prometheus away no rule can be evaluated: one of them says so, and the others stay as they were.
        "execErrState": "Error" if alert.name == _OF_PROMETHEUS else "KeepLast",
        "for": alert.hold,
        "annotations": {name: _with_values(text) for name, text in _annotations(alert).items()},
        "labels": {"severity": alert.severity},
        "isPaused": False,
    }


def _with_values(text: str) -> str:
    """Grafana's $value is a text; a query's number is under its refId, and absent where there was no answer."""
    return re.sub(
        r"{{ ([^{}]*)\$value\b([^{}]*) }}",
        lambda use: f"{{{{ with $values.A }}}}{{{{ {use[1]}.Value{use[2]} }}}}{{{{ end }}}}",
        text,
    )


def _expression(ref: str, model: Mapping[str, Node]) -> Mapping[str, Node]:
    return {
        "refId": ref,
        "relativeTimeRange": {"from": 0, "to": 0},
        "datasourceUid": "__expr__",
        "model": {"refId": ref, **model},
    }
