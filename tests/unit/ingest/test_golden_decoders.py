"""Golden folders: what came over the wire, and the rows that it must give or the one line that says what is wrong.

OPC UA messages were captured from node-opcua's server; their rows are what asyncua's codec makes of them. Modbus
registers are written by hand.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.config.sources import ModbusTag
from core.config.tags import read_tags
from core.errors import DecodeError, Problem
from core.paths import CHECKOUT
from ingest.modbus.decode import Decoder
from ingest.modbus.plan import plan
from ingest.opcua.decode.data_change import data_change
from ingest.opcua.decode.message import publish_response

GOLDEN = CHECKOUT / "tests" / "unit" / "golden"


def folders(protocol: str) -> list[Path]:
    found = sorted((GOLDEN / protocol).iterdir())
    assert found
    return found


@pytest.mark.parametrize("folder", folders("opcua"), ids=lambda folder: folder.name)
def test_golden_opcua_messages_are_decoded(folder: Path) -> None:
    body = bytes.fromhex((folder / "message.hex").read_text())
    assert opcua_rows(body) == sorted((folder / "expected.txt").read_text().splitlines())


def opcua_rows(body: bytes) -> list[str]:
    try:
        response = publish_response(body)
        rows = [f"subscription {response.subscription_id} sequence {response.notification.sequence}"]
        for start, end in response.notification.data_changes:
            change = data_change(body, start, end, 0)
            rows += [f"{t.handle} {t.time} {t.text!r} 0x{t.status:08X}" for t in change.texts]
            columns = [np.concatenate(c).tolist() for c in (change.handle, change.time, change.value, change.status)]
            rows += [f"{h} {t} {v!r} 0x{s:08X}" for h, t, v, s in zip(*columns, strict=True)]
    except DecodeError as error:
        return [str(error)]
    return sorted(rows)


@pytest.mark.parametrize("folder", folders("modbus"), ids=lambda folder: folder.name)
def test_golden_modbus_messages_are_decoded(folder: Path) -> None:
    problems: list[Problem] = []
    tags = [tag for tag, _ in read_tags(folder / "tags.csv", ModbusTag, problems)]
    assert not problems
    lines = [line for line in (folder / "registers.txt").read_text().splitlines() if not line.startswith("#")]
    raw = np.array([int(word, 16) for line in lines for word in line.split()], np.uint16)
    assert modbus_rows(tags, raw) == (folder / "expected.txt").read_text().splitlines()


def modbus_rows(tags: list[ModbusTag], raw: np.ndarray) -> list[str]:
    (read,) = plan(tags, range(len(tags)), 0, 125)
    decoder = Decoder(read, tags)
    try:
        numbers = dict(zip(decoder.tags.tolist(), decoder.numbers(raw).tolist(), strict=True))
        values: dict[int, float | str] = {**numbers, **{i: text for i, _, text in decoder.texts(raw)}}
        rounded = {i for i, _ in decoder.rounded(raw)}
    except DecodeError as error:
        return [str(error)]
    return [f"{tag.name} {values[i]!r}{' rounded' if i in rounded else ''}" for i, tag in enumerate(tags)]
