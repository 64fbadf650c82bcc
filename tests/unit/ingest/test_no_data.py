"""Values that mean no value, of an OPC UA server and of a gateway."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from core.config.sources import OpcuaSource, OpcuaTag
from ingest.no_data import BAD_NO_DATA, NoData
from ingest.opcua.subscription.tags import Tags
from ingest.push.mapping import MappedRows

UNCERTAIN, BAD = 0x40000000, 0x80050000


def test_a_server_that_sends_no_value() -> None:
    cells = ("-9999", "", "nan")
    rows = tuple(OpcuaTag(name=f"t{i}", address=f"ns=2;s=t{i}", no_data=cell) for i, cell in enumerate(cells))
    tags = Tags(OpcuaSource(name="s", kind="opcua", address="opc.tcp://h:4840", tags=rows), {"t0": 7, "t1": 8, "t2": 9})
    place = np.array([0, 0, 0, 1, 1, 2, 2], np.uint32)
    value = np.array([-9999, -9998, -9999, -9999, math.nan, math.nan, 1.0])
    status = np.array([UNCERTAIN, 0, BAD, 0, 0, 0, 0], np.uint32)
    values, statuses = tags.without_no_data(place, value, status)
    assert statuses.tolist() == [BAD_NO_DATA, 0, BAD, 0, 0, BAD_NO_DATA, 0]
    assert np.array_equal(values, [math.nan, -9998, -9999, -9999, math.nan, math.nan, 1.0], equal_nan=True)


def test_a_gateway_that_pushes_no_value() -> None:
    rows = MappedRows(no_data=NoData([(5, "65535; 100..200"), (7, "")]))
    for channel, number in ((5, 65535), (7, 65535), (5, 99.5), (5, 150.0), (9, 150)):
        rows.add(channel, 1, number)
    samples = rows.samples()
    assert samples.status.tolist() == [BAD_NO_DATA, 0, 0, BAD_NO_DATA, 0]
    assert np.isnan(samples.value).tolist() == [True, False, False, True, False]


@pytest.mark.parametrize("cell", ["65535;", "1..", "x", "0x", "1,5", "NaN", "1 2", "1...2"])
def test_illegal_values_are_refused(cell: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(OpcuaTag).validate_python({"name": "t", "address": "ns=2;s=t", "no_data": cell})


@pytest.mark.parametrize("cell", ["65535", "-9999.9", "0x8000; 0x7FFF", "-10..-5;nan", "1e30", "-inf..-1e300"])
def test_legal_values(cell: str) -> None:
    assert TypeAdapter(OpcuaTag).validate_python({"name": "t", "address": "ns=2;s=t", "no_data": cell}).no_data == cell
