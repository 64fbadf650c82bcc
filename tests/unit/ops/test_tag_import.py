"""``import``: golden folders (a file of another product, and all that is made and said of it)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.load import load
from core.config.sources import ModbusTag
from core.errors import OperationError
from core.paths import CHECKOUT
from ops.registration.tag_import.import_file import run

GOLDEN = CHECKOUT / "tests" / "unit" / "golden" / "import"
ADDRESSES = {"kepware": "tcp://192.0.2.20:502", "ignition": "opc.tcp://192.0.2.10:4840"}
HEADER = "Tag Name,Address,Data Type,Scaling,Raw Low,Raw High,Scaled Low,Scaled High,Negate Value\n"

SERVERS = json.dumps({"tags": [{"name": s, "valueSource": "opc", "opcServer": s, "opcItemPath": "i=1"} for s in "AB"]})


@pytest.mark.parametrize("folder", sorted(GOLDEN.iterdir()), ids=lambda folder: folder.name)
def test_imported_files_give_legal_sources(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = (file for file in folder.iterdir() if file.name != "expected.txt")
    run(file, None, ADDRESSES.get(folder.name), "CDAB", None, tmp_path)
    printed = capsys.readouterr()
    lists = "".join(f"-- {made.name}\n{made.read_text()}" for made in sorted(tmp_path.iterdir()))
    output = printed.out + lists + "-- not carried over\n" + printed.err.replace(f"{folder}/", "")
    assert output == (folder / "expected.txt").read_text()
    (tmp_path / "plant.toml").write_text(f'[plant]\nname = "p"\n{printed.out}')
    channels = sum(len(source.tags) for source in load(tmp_path / "plant.toml").sources)
    assert f"{channels} channels imported" in printed.err
    with pytest.raises(OperationError, match="already exists"):
        run(file, None, ADDRESSES.get(folder.name), "CDAB", None, tmp_path)


decimals = st.decimals(-10_000, 10_000, places=2, allow_nan=False)


@given(st.integers(-32768, 32767), st.integers(-32768, 32767), decimals, decimals, st.booleans())
def test_scaling_of_kepware_is_exact(
    tmp_path_factory: pytest.TempPathFactory, raw_low: int, raw_high: int, low: Fraction, high: Fraction, negate: bool
) -> None:
    """Each end of the raw range gives the end of the scaled range, by exact arithmetic; or the tag is left out."""
    folder = tmp_path_factory.mktemp("import")
    row = f"a,400001,Short,Linear,{raw_low},{raw_high},{low},{high},{int(negate)}\n"
    (folder / "plc.csv").write_text(HEADER + row)
    out = folder / "out"
    out.mkdir()
    run(folder / "plc.csv", None, "tcp://192.0.2.20:502", "CDAB", None, out)
    (out / "plant.toml").write_text(
        '[plant]\nname = "p"\n[[source]]\nname = "plc"\nkind = "modbus"\naddress = "tcp://h:502"\ntags = "plc.csv"\n'
    )
    for tag in load(out / "plant.toml").sources[0].tags:
        assert isinstance(tag, ModbusTag)
        for raw, scaled in ((raw_low, Fraction(low)), (raw_high, Fraction(high))):
            offset = Fraction(repr(tag.offset))
            value = raw * Fraction(tag.scale) / Fraction(tag.divisor) + offset
            assert value == (-scaled if negate else scaled)


@pytest.mark.parametrize(
    ("file", "content", "address", "message"),
    [
        ("plc.csv", "Name,Address\n", "tcp://h:502", "is no CSV export of KEPServerEX: it has no column 'Tag Name'"),
        ("plc.csv", HEADER, None, "has no address of its source: give --address, as in tcp://192.0.2.20:502"),
        ("plc.csv", HEADER, "192.0.2.20", "plc.csv: address '192.0.2.20': "),
        ("nodes.json", "{", None, "is no JSON: "),
        ("nodes.json", "[{}]", None, "is no publishednodes.json"),
        ("tags.json", "{}", "opc.tcp://h:4840", "is no tag export of Ignition"),
        ("tags.json", SERVERS, "opc.tcp://h:4840", "has tags of the OPC servers A, B: choose one by --server"),
        ("tags.json", "{}", None, "give --address, as in opc.tcp://192.0.2.10:4840"),
        ("nodes.json", "[]", "tcp://h:502", "--address is for KEPServerEX and Ignition"),
        ("nodes.json", '[{"EndpointUrl": "http://h"}]', None, "nodes.json: address 'http://h': "),
        ("-.csv", HEADER, "tcp://h:502", "'' is no name of a source, as in boiler-house: give --name"),
    ],
)
def test_files_that_cannot_be_imported(
    tmp_path: Path, file: str, content: str, address: str | None, message: str
) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(OperationError) as caught:
        run(tmp_path / file, None, address, "CDAB", None, tmp_path / "out")
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_one_of_several_servers_of_ignition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tags.json").write_text(SERVERS)
    run(tmp_path / "tags.json", "press", "opc.tcp://h:4840", "CDAB", "B", tmp_path / "new" / "plant")
    assert (tmp_path / "new" / "plant" / "press.csv").read_text() == "name,address,kind\npress/B,i=1,analog\n"
    assert "tags.json: A: a tag of OPC server 'A'\n1 channel imported, 1 left out" in capsys.readouterr().err
