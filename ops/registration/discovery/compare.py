"""Compares a tag list with the variables of its server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from core.config.addresses.value_path import flat_index, parse_index
from core.config.sources import ChannelKind, OpcuaTag
from core.config.templates import TagLocation
from core.errors import SourceError
from ops.registration.discovery.discover import Discovered, SkippedVariable
from ops.registration.discovery.variable import lengths_text

Values: TypeAlias = tuple[Any, Any]  # in the tag list, on the server

# What the server cannot tell, the tag list decides: whether a number counts, is a state, or has to stay exact.
_READ_AS: dict[ChannelKind, tuple[ChannelKind, ...]] = {
    **dict.fromkeys(("analog", "counter"), ("analog", "counter", "discrete", "text")),
    "discrete": ("discrete", "text"),
    "text": ("text",),
}


@dataclass(frozen=True, slots=True)
class UnreadableTag:
    """A tag that the server does not have, or that cannot be read as the tag list says."""

    tag: OpcuaTag
    location: TagLocation  # in the tag list
    reason: str


@dataclass(frozen=True, slots=True)
class DifferentTag:
    """A tag whose columns differ from what the server says."""

    tag: OpcuaTag
    location: TagLocation
    columns: dict[str, Values]


@dataclass(slots=True)
class Comparison:
    """Differences between a tag list and its server."""

    only_server: list[OpcuaTag] = field(default_factory=list)  # as ``discover`` lists them
    only_list: list[UnreadableTag] = field(default_factory=list)
    different: list[DifferentTag] = field(default_factory=list)
    not_seen: list[UnreadableTag | SkippedVariable] = field(default_factory=list)  # not compared
    same: int = 0  # tags

    @property
    def equal(self) -> bool:
        """Return whether nothing differs, and all was compared."""
        return not (self.only_server or self.only_list or self.different or self.not_seen)


def compare(tags: Sequence[tuple[OpcuaTag, TagLocation]], discovered: Discovered) -> Comparison:
    """Compare tags with their locations and what ``discover`` reports on them, node by node.

    ``nsu=`` and ``ns=`` forms of one node are equal. Units and ranges that the server does not have are no difference.
    """
    comparison = Comparison()
    listed: set[Any] = set()
    for tag, location in tags:
        try:
            node = discovered.namespaces.node_id(tag.address)
        except SourceError as error:
            comparison.only_list.append(UnreadableTag(tag, location, str(error)))
            continue
        listed.add((node, tag.member))
        on_server, variable = discovered.by_node.get((node, tag.member)), discovered.by_node[node, ""]
        if isinstance(variable, SkippedVariable) and not variable.is_seen:
            comparison.not_seen.append(UnreadableTag(tag, location, variable.reason))
        elif on_server is None:
            comparison.only_list.append(UnreadableTag(tag, location, _no_member(variable)))
        elif reason := _unreadable(tag, on_server):
            comparison.only_list.append(UnreadableTag(tag, location, reason))
        elif columns := dict(_differences(tag, on_server)):
            comparison.different.append(DifferentTag(tag, location, columns))
        else:
            comparison.same += 1
    of_tags = {discovered.namespaces.address(node) for node, _ in listed} if discovered.not_seen else set()
    comparison.not_seen += [
        skipped for skipped in discovered.not_seen if not skipped.name or skipped.address not in of_tags
    ]
    comparison.only_server = [
        tag for tag in discovered.tags if (discovered.namespaces.node_id(tag.address), tag.member) not in listed
    ]
    return comparison


def _no_member(on_server: OpcuaTag | SkippedVariable) -> str:
    """Reason why a variable has no members."""
    return "not a structure, but the tag has a member" if isinstance(on_server, OpcuaTag) else on_server.reason


def _unreadable(tag: OpcuaTag, on_server: OpcuaTag | SkippedVariable) -> str:
    """Reason why the server's variable cannot be read as the tag says; empty: it can be."""
    if isinstance(on_server, OpcuaTag):
        return "" if tag.index is None else "not an array, but the tag has an index"
    if not on_server.dimensions or tag.index is None:
        return on_server.reason
    indexes = parse_index(tag.index)
    if len(indexes) != on_server.dimensions:
        dimensions = f"{on_server.dimensions} dimension{'s' * (on_server.dimensions > 1)}"
        return f"an array of {dimensions}, but the tag has index {tag.index}"
    if not on_server.lengths or flat_index(indexes, on_server.lengths) is not None:
        return ""
    return f"the array has {lengths_text(on_server.lengths)}, but the tag has index {tag.index}"


def _differences(tag: OpcuaTag, variable: OpcuaTag | SkippedVariable) -> Iterator[tuple[str, Values]]:
    if isinstance(variable, SkippedVariable):  # an array, whose elements may be anything
        return
    if tag.kind not in _READ_AS[variable.kind]:
        yield "kind", (tag.kind, variable.kind)
    for column in ("unit", "lo", "hi"):
        listed, on_server = getattr(tag, column), getattr(variable, column)
        if on_server not in ("", None) and listed != on_server:
            yield column, (listed, on_server)
