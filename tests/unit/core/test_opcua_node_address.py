"""Node ids as text: what is legal, and that text and node id are the same both ways."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest
from asyncua import ua
from hypothesis import given
from hypothesis import strategies as st

from core.config.addresses.node_address import NodeAddress, fault, in_cell, namespace_uri, parse
from core.config.sources import OpcuaTag
from core.config.tags import read_tags, write_rows
from core.errors import Problem, SourceError
from core.opcua.namespaces import Namespaces

_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
_IDENTIFIERS = st.one_of(st.integers(0, 2**32 - 1), _TEXTS, st.uuids(), st.binary(min_size=1))
_URIS = _TEXTS | st.text(";%=,3Bb2 5", min_size=1)
# Whatever a server may send, with what a tag list treats in its own way more often
_ANYTHING = st.one_of(
    *(st.integers(0, 2**32 - 1), st.uuids(), st.binary(), st.text(st.characters(exclude_categories=()))),
    *(st.text(" \t\r\n\0\xa0\u2028,;\"'{}=#\ufeff\udc80x"), st.sampled_from(["x" * 4096, "x" * 4097, b"x" * 4097])),
)
_ADDRESSES = st.builds(NodeAddress, st.integers(0, 65535) | _URIS, _IDENTIFIERS)


@given(_ADDRESSES)
def test_text_of_an_address_is_parsed_to_the_same_address(address: NodeAddress) -> None:
    text = str(address)
    assert parse(text) == address
    assert namespace_uri(text) == (address.namespace if isinstance(address.namespace, str) else None)


@given(_IDENTIFIERS, st.lists(_URIS, min_size=1, unique=True), st.data())
def test_address_of_a_node_leads_to_this_node(
    identifier: int | str | UUID | bytes, uris: list[str], data: st.DataObject
) -> None:
    namespaces = Namespaces(["http://opcfoundation.org/UA/", *(f"urn:{uri}" for uri in uris)])
    node = ua.NodeId(identifier, data.draw(st.integers(0, len(uris) + 1)))
    address = namespaces.address(node)
    assert namespaces.node_id(address) == node
    assert address.startswith("nsu=urn:") == (1 <= node.NamespaceIndex <= len(uris))


def _read(folder: Path, row: dict[str, str], instances: dict[str, str]) -> list[str]:
    """The addresses of a tag list with this row; ``instances``: of the instance list that it may name."""
    with (folder / "tags.csv").open("w", newline="", encoding="utf-8") as file:
        write_rows(file, list(row), [row])
    with (folder / "motors.csv").open("w", newline="", encoding="utf-8") as file:
        write_rows(file, list(instances), [instances])
    problems: list[Problem] = []
    tags = read_tags(folder / "tags.csv", OpcuaTag, problems)
    assert not problems
    return [tag.address for tag, _ in tags]


@given(_ANYTHING, st.integers(0, 2))
def test_tag_list_keeps_a_node_id_or_it_is_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, identifier: int | str | UUID | bytes, index: int
) -> None:
    """As ``discover`` writes it and ``check`` reads it, in a row of its own and by a template."""
    node = ua.NodeId(identifier, index)
    namespaces = Namespaces(["http://opcfoundation.org/UA/", "urn:a, b"])
    address = namespaces.address(node)
    reason = fault(address)
    illegal = re.compile("[\0\ud800-\udfff]|.{4097}|$(?<!.)", re.DOTALL)
    text = (
        identifier if isinstance(identifier, str) else "x" * len(identifier) if isinstance(identifier, bytes) else "x"
    )
    assert (illegal.search(text) is not None) == bool(reason)
    if reason:
        assert reason.startswith("a node id ")
        return
    folder = tmp_path_factory.mktemp("t")
    (same,) = _read(folder, {"name": "a", "address": address}, {"motor": "x"})
    assert namespaces.node_id(same) == node
    assert same == address
    cell = identifier if isinstance(identifier, str) else address
    template = {"name": "{motor}", "address": f"{address.removesuffix(cell)}{{id}}", "instances": "motors.csv"}
    (same,) = _read(folder, template, {"motor": " x ", "id": cell})
    assert namespaces.node_id(same) == node


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        *((" ns=2;s=x ", "ns=2;s=x "), ("s=x\r\n", "s=x\r\n"), ("\tnsu=urn:a;s= ", "nsu=urn:a;s= ")),
        *((" ns=2;i=5 ", "ns=2;i=5"), ("b=AQID\n", "b=AQID"), (" ns = 2;s=x ", "ns = 2;s=x")),
    ],
)
def test_blanks_belong_to_a_text_identifier_alone(cell: str, expected: str) -> None:
    assert in_cell(cell) == expected


def test_blanks_of_an_instance_belong_to_the_identifier_alone(tmp_path: Path) -> None:
    """Not to names, and not to the number of a register or node."""
    row = {"name": "{motor}/{n}", "address": "ns={n};s={motor}.speed", "instances": "motors.csv"}
    assert _read(tmp_path, row, {"motor": "m1 ", "n": " 2"}) == ["ns=2;s=m1 .speed"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i=2253", NodeAddress(0, 2253)),
        ("ns=0;i=2253", NodeAddress(0, 2253)),
        ("ns=65535;s=a;b=c;i=5", NodeAddress(65535, "a;b=c;i=5")),
        ('ns=3;s="DB"."arr"[3]', NodeAddress(3, '"DB"."arr"[3]')),
        ("nsu=http://vendor.com/line;s=Tank1.Level", NodeAddress("http://vendor.com/line", "Tank1.Level")),
        ("nsu=urn:a%3bb%25;i=1", NodeAddress("urn:a;b%", 1)),
        ("nsu=urn:a=b,c;s=ns=2;s=x", NodeAddress("urn:a=b,c", "ns=2;s=x")),
        ("ns=1;g=09087E75-8E5E-499B-954F-F2A9603DB28A", NodeAddress(1, UUID("09087e75-8e5e-499b-954f-f2a9603db28a"))),
        ("ns=1;b=0x0a", NodeAddress(1, b"\xd3\x1d\x1a")),
    ],
)
def test_legal_addresses(text: str, expected: NodeAddress) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "s=", "i=-1", "i=4294967296", "i=１", "ns=65536;i=1", "ns=1", "ns=a;i=1", "ns=1;nsu=urn:x;i=1"),
        *("nsu=;s=x", "nsu=urn:x", "nsu=urn:100%;s=x", "nsu=urn:%f;s=x", "nsu=urn:%ff;s=x", "svr=1;nsu=urn:x;s=x"),
        *("g=1", "b=", "b=*", "ns=1;x=1", "s=a\0", "s=\udcff", f"s={'x' * 4097}"),
    ],
)
def test_illegal_addresses(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


@pytest.mark.parametrize(
    ("uris", "reason"),
    [
        (["urn:a", None, "urn;b"], "the server has no namespace urn:x; it has urn:a, urn%3Bb"),
        (["urn:a", "urn:x", "urn:x"], "the server has namespace urn:x more than once, as 1 and 2"),
        ([f"urn:{i}" for i in range(30)], f"it has {', '.join(f'urn:{i}' for i in range(20))} and 10 others"),
    ],
)
def test_reason_for_a_namespace_that_cannot_be_resolved(uris: list[str | None], reason: str) -> None:
    with pytest.raises(SourceError, match=f"{reason}$"):
        Namespaces(uris).node_id("nsu=urn:x;s=a")


def test_ambiguous_and_unnamed_namespaces_are_listed_by_index() -> None:
    namespaces = Namespaces(["http://opcfoundation.org/UA/", None, "urn:x", "urn:x", ""])
    assert [namespaces.address(ua.NodeId("a", index)) for index in range(6)] == [
        *("s=a", "ns=1;s=a", "ns=2;s=a", "ns=3;s=a", "ns=4;s=a", "ns=5;s=a")
    ]
