"""The configuration: golden folders (a configuration and what is said of it), and anything at all never crashes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from core.config.base import fields_of
from core.config.load import load, load_opcua_source
from core.config.locate import line_of, locate
from core.config.sources import (
    PRESENTATION_FIELDS,
    ModbusSource,
    ModbusTag,
    OpcuaSource,
    OpcuaTag,
    PushTag,
    RegisterType,
)
from core.config.tags import read_tags
from core.config.templates import COLUMN
from core.errors import ConfigError, OperationError, Problem
from core.paths import CHECKOUT
from ops.cli.config import app

GOLDEN = CHECKOUT / "tests" / "unit" / "golden" / "config"
LISTS = {
    "{columns}": sorted([*fields_of(ModbusTag), COLUMN]),
    "{push columns}": sorted(fields_of(PushTag)),
    "{types}": get_args(RegisterType),
}
"""What expected texts name, so that a new column or data type changes none of them."""


@pytest.mark.parametrize("folder", sorted(GOLDEN.iterdir()), ids=lambda folder: folder.name)
def test_invalid_configurations_have_the_expected_messages(folder: Path) -> None:
    for file in folder.iterdir():
        if file.is_file():
            file.chmod(0o600)  # git does not keep what a secret needs
    try:
        load(folder / "plant.toml")
        output = "legal\n"
    except ConfigError as error:
        output = str(error).replace(f"{folder}/", "") + "\n"
    expected = (folder / "expected.txt").read_text()
    for placeholder, names in LISTS.items():
        expected = expected.replace(placeholder, ", ".join(names))
    assert output == expected


def test_fields_of_presentation_are_fields_of_tags() -> None:
    tags = (OpcuaTag, ModbusTag, PushTag)
    assert {*PRESENTATION_FIELDS} <= {name for tag in tags for name in fields_of(tag)}
    assert "alarm_hi" in PRESENTATION_FIELDS


def test_path_in_a_message_is_whole(tmp_path: Path) -> None:
    file = tmp_path / ("long" * 25) / "plant.toml"
    file.parent.mkdir()
    file.write_text('[plant]\nname = "p"\n[backup]\nrepository = "/r"\npassphrase_file = "t"\n')
    with pytest.raises(ConfigError, match=re.escape(f"found '{file.parent / 't'}'; legal: an existing file")):
        load(file)


def test_one_serial_device_has_one_name(tmp_path: Path) -> None:
    (tmp_path / "ttyUSB0").touch()
    (tmp_path / "by-id").symlink_to(tmp_path / "ttyUSB0")
    sources = [
        f'[[source]]\nname = "{name}"\nkind = "modbus"\naddress = "serial://{tmp_path}/{device}"\n'
        f'unit_id = {unit}\ntags = "{name}.csv"\n'
        for unit, (name, device) in enumerate([("a", "ttyUSB0"), ("b", "by-id")], 1)
    ]
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"name,address,type\n{name},input:0,int16\n")
    (tmp_path / "plant.toml").write_text('[plant]\nname = "p"\n' + "".join(sources))
    legal = f"legal: the settings of line 6, which uses the same device: serial://{tmp_path}/ttyUSB0"
    with pytest.raises(
        ConfigError, match=re.escape(f"plant.toml:12: source.b.address: found 'serial://{tmp_path}/by-id'; {legal}")
    ):
        load(tmp_path / "plant.toml")


def test_templates_give_what_plain_rows_give() -> None:
    folder = GOLDEN / "templates" / "tags"
    problems: list[Problem] = []
    digests: dict[str, str] = {}
    templates = read_tags(folder / "plc.csv", ModbusTag, problems, digests)
    plain = read_tags(folder / "as_plain_rows.csv", ModbusTag, problems)
    assert not problems
    assert [tag for tag, _ in templates] == [tag for tag, _ in plain]
    assert sorted(digests) == [str(folder / name) for name in ("lines.csv", "motors.csv", "plc.csv")]
    motors = str(folder / "motors.csv")
    assert [place for _, place in templates[:3]] == [(2, motors, 2), (2, motors, 3), (2, motors, 5)]


@pytest.mark.parametrize(
    ("token", "mode", "message"),
    [
        ("x", 0o600, "with 1 characters; legal: one line of 16 or more characters, 8 of them different"),
        ("abababababababababab", 0o600, "with 2 different characters; legal: one line of 16"),
        ("two words are no token", 0o600, "with spaces or line breaks in it; legal: one line"),
        ("a-token-that-nobody-guesses", 0o644, "with permissions 0644; legal: 0600: run chmod 600"),
        ("a-token-that-nobody-guesses", 0o640, ""),
    ],
)
def test_a_token_is_a_secret(tmp_path: Path, token: str, mode: int, message: str) -> None:
    file = tmp_path / "plant.toml"
    file.write_text(
        '[plant]\nname = "p"\n[backup]\nrepository = "/r"\npassphrase_file = "t"\n'
        '[[source]]\nname = "s"\nkind = "modbus"\naddress = "tcp://h:1"\ntags = "t.csv"\n'
    )
    (tmp_path / "t.csv").write_text("name,address\na,holding:0\n")
    (tmp_path / "t").write_text(token)
    (tmp_path / "t").chmod(mode)
    if not message:
        load(file)
        return
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert [problem.field for problem in caught.value.problems] == ["backup.passphrase_file"]
    assert all(message in str(problem) for problem in caught.value.problems)
    assert token not in str(caught.value) or len(token) == 1


def test_check_warns_of_a_source_that_reads_nothing(tmp_path: Path) -> None:
    file = tmp_path / "plant.toml"
    file.write_text(
        '[plant]\nname = "p"\n[[source]]\nname = "s"\nkind = "modbus"\naddress = "tcp://h:1"\ntags = "t.csv"\n'
    )
    (tmp_path / "t.csv").write_text("name,address\n")
    assert "warning: source s reads nothing" in CliRunner().invoke(app, ("check", str(file))).output
    (tmp_path / "t.csv").write_text("name,address\na,holding:1\n")
    assert "warning" not in CliRunner().invoke(app, ("check", str(file))).output


def test_check_warns_of_a_folder_that_cannot_be_an_archive(tmp_path: Path) -> None:
    folder, file = tmp_path / "archive", tmp_path / "plant.toml"
    file.write_text(
        f'[plant]\nname = "p"\n[archive]\nlocation = "{folder}"\n[[source]]\nname = "s"\nkind = "modbus"\n'
        'address = "tcp://h:1"\ntags = "t.csv"\n'
    )
    (tmp_path / "t.csv").write_text("name,address\na,holding:1\n")

    def warned() -> list[str]:
        lines = CliRunner().invoke(app, ("check", str(file))).output.splitlines()
        return [line.partition("warning: ")[2] for line in lines if "warning" in line]

    assert warned() == [f"archive {folder}: no such folder; create it, or mount what it is on"]
    folder.mkdir()
    assert warned() == []
    (folder / "photos").mkdir()
    assert warned() == [f"archive {folder} contains photos, and is no archive: choose an empty folder"]
    (folder / "plantlog-archive.json").touch()
    assert warned() == []


def test_missing_configuration_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plant\.toml: file: found no such file"):
        load(tmp_path / "plant.toml")


@pytest.mark.parametrize(
    "text",
    [
        'tags = "a\\u0000b"',
        f"tags = {'9' * 5000}",
        f"tags = {'[' * 5000}{']' * 5000}",
        'tags = "."',
        "tags = 1979-13-32",
    ],
    ids=["nul", "digits", "depth", "folder", "date"],
)
def test_values_python_refuses_are_reported_as_problems(tmp_path: Path, text: str) -> None:
    source = '[plant]\nname = "d"\n[[source]]\nname = "s"\nkind = "modbus"\naddress = "tcp://h:1"\n'
    (tmp_path / "plant.toml").write_text(source + text)
    with pytest.raises(ConfigError) as error:
        load(tmp_path / "plant.toml")
    assert len(error.value.problems) == 1


def test_minimal_configuration_of_one_source_is_valid(tmp_path: Path) -> None:
    """Its first tag list is made with them."""
    file = tmp_path / "plant.toml"
    file.write_text(
        '[health]\nport = "x"\n[[source]]\nname = "mill"\nkind = "opcua"\naddress = "opc.tcp://127.0.0.1:4840"\n'
        'insecure = true\ntags = "tags/mill.csv"\n'
        '[[source]]\nname = "plc"\nkind = "modbus"\n[[source]]\nname = "odd"\nkind = "opcua"\naddress = 7\n'
    )
    source = load_opcua_source(file, "mill")
    assert (source.address, source.insecure, source.tags) == ("opc.tcp://127.0.0.1:4840", True, ())
    with pytest.raises(ConfigError) as caught:
        load_opcua_source(file, "odd")
    assert [problem.field for problem in caught.value.problems] == ["source.odd.address"]
    with pytest.raises(OperationError, match="source plc has kind modbus: only kind opcua can be browsed"):
        load_opcua_source(file, "plc")
    with pytest.raises(OperationError, match="no OPC UA source press; it has mill, odd"):
        load_opcua_source(file, "press")


def test_configuration_with_windows_line_endings_and_bom(tmp_path: Path) -> None:
    toml = '[plant]\nname = "d"\n[[source]]\nname = "s"\nkind = "modbus"\naddress = "tcp://h:1"\ntags = "t.csv"\n'
    (tmp_path / "plant.toml").write_bytes(b"\xef\xbb\xbf" + toml.replace("\n", "\r\n").encode())
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfname,address,unit\r\na,holding:0,\xc2\xb0C\r\n")
    assert load(tmp_path / "plant.toml").sources[0].tags[0].unit == "°C"


def test_tables_and_keys_are_located_by_line() -> None:
    lines = locate(
        "top.inner = 1\n"
        "[a]\n"
        "x = 1\n"
        "[[s]] # first\n"
        "'q d' = 1\n"
        't = """\n'
        "[[s]]\n"
        'x = 1"""\n'
        "[[s]]\n"
        "\u2028x.y = [\n"
        "  1,\n"
        "]\n"
        "[a . b]\n"
    )
    assert lines == {
        ("top",): 1,
        ("top", "inner"): 1,
        ("a",): 2,
        ("a", "x"): 3,
        ("s",): 4,
        ("s", 0): 4,
        ("s", 0, "q d"): 5,
        ("s", 0, "t"): 6,
        ("s", 1): 9,
        ("s", 1, "x"): 10,
        ("s", 1, "x", "y"): 10,
        ("a", "b"): 13,
    }
    assert line_of(lines, ("s", 1, "nothing")) == 9
    assert line_of(lines, ("nothing",)) is None


def test_configuration_round_trips(tmp_path: Path) -> None:
    (tmp_path / "plant.toml").write_text(
        '[plant]\nname = "demo"\n[spool]\nmax_bytes = "1 MiB"\n[writer]\nconnections = 3\n'
        '[[source]]\nname = "s"\nkind = "opcua"\naddress = "opc.tcp://h:4840"\npublishing_interval = "250ms"\n'
        'tags = "o.csv"\n[[source]]\nname = "m"\nkind = "modbus"\naddress = "tcp://h:502"\ntags = "m.csv"\n'
    )
    (tmp_path / "o.csv").write_text("name,address,lo,hi,interval\na/b,ns=2;s=x,0,10,100ms\n")
    (tmp_path / "m.csv").write_text("name,address,type,word_order,divisor\na/c,holding:7,float32,CDAB,10\n")
    plant = load(tmp_path / "plant.toml")
    assert (plant.spool.max_bytes, plant.writer.connections, plant.health.port) == (1024**2, 3, 9101)
    opcua, modbus = plant.sources
    assert isinstance(opcua, OpcuaSource)
    assert isinstance(modbus, ModbusSource)
    assert (opcua.publishing_interval, opcua.tags[0].interval, opcua.tags[0].hi) == (0.25, 0.1, 10.0)
    tag = modbus.tags[0]
    assert (tag.table, tag.register, tag.word_order, tag.divisor) == ("holding", 7, "CDAB", 10.0)


_SCALARS = st.sampled_from(
    ['"opcua"', '"modbus"', '"demo"', '"1s"', "1", "-1", "1.5", "true", '""', '"tags.csv"', '"tcp://h:1"', "[]", "{}"]
)
_KEYS = st.sampled_from(["name", "kind", "address", "tags", "unit_id", "interval", "max_bytes", "port", "bogus"])
_TABLES = st.sampled_from(["[plant]", "[[source]]", "[spool]", "[writer]", "[health]", "[source]", "[bogus]"])
_LINES = st.one_of(_TABLES, st.builds("{} = {}".format, _KEYS, _SCALARS))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.lists(_LINES).map("\n".join).map(str.encode), st.binary()), st.binary())
def test_any_input_is_loaded_or_refused_with_a_message(tmp_path: Path, toml: bytes, csv: bytes) -> None:
    (tmp_path / "plant.toml").write_bytes(toml)
    (tmp_path / "tags.csv").write_bytes(b"name,address\n" + csv)
    try:
        load(tmp_path / "plant.toml")
    except ConfigError as error:
        assert error.problems
        assert all(problem.legal for problem in error.problems)
