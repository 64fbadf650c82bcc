"""The names in Prometheus' rules, as tests need them."""

from __future__ import annotations

import re

from core.paths import CHECKOUT

FOLDER = CHECKOUT / "ops" / "prometheus"
RULES = FOLDER / "rules" / "plantlog.yml"
TEXT = RULES.read_text()
ALERTS = re.findall(r"^ +- alert: (\w+)$", TEXT, re.MULTILINE)
RECORDS = re.findall(r"^ +- record: (\S+)$", TEXT, re.MULTILINE)
