"""Node ids as text: what is legal, and that text and node id are the same both ways."""

from __future__ import annotations

from uuid import UUID

import pytest
from asyncua import ua
from hypothesis import given
from hypothesis import strategies as st

from ingest.config.node_address import NodeAddress, namespace_uri, parse
from ingest.errors import SourceError
from ingest.opcua.namespaces import Namespaces

_IDENTIFIERS = st.one_of(st.integers(0, 2**32 - 1), st.text(min_size=1), st.uuids(), st.binary(min_size=1))
_URIS = st.text(min_size=1) | st.text(";%=,3Bb2 5", min_size=1)
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
        *("g=1", "b=", "b=*", "ns=1;x=1"),
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
