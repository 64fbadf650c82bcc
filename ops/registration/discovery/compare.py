"""Compares a tag list with the variables of its server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from core.config.sources import ChannelKind, OpcuaTag
from core.config.templates import TagLocation
from core.config.value_path import flat_index, parse_index
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
        there, variable = discovered.by_node.get((node, tag.member)), discovered.by_node[node, ""]
        if isinstance(variable, SkippedVariable) and not variable.is_seen:
            comparison.not_seen.append(UnreadableTag(tag, location, variable.reason))
        elif there is None:
            comparison.only_list.append(UnreadableTag(tag, location, _no_member(variable)))
        elif reason := _unreadable(tag, there):
            comparison.only_list.append(UnreadableTag(tag, location, reason))
        elif columns := dict(_differences(tag, there)):
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


def _no_member(there: OpcuaTag | SkippedVariable) -> str:
    """Reason why a variable has no members."""
    return "not a structure, but the tag has a member" if isinstance(there, OpcuaTag) else there.reason


def _unreadable(tag: OpcuaTag, there: OpcuaTag | SkippedVariable) -> str:
    """Reason why the server's variable cannot be read as the tag says; empty: it can be."""
    if isinstance(there, OpcuaTag):
        return "" if tag.index is None else "not an array, but the tag has an index"
    if not there.dimensions or tag.index is None:
        return there.reason
    indexes = parse_index(tag.index)
    if len(indexes) != there.dimensions:
        return (
            f"an array of {there.dimensions} dimension{'s' * (there.dimensions > 1)}, but the tag has index {tag.index}"
        )
    if not there.lengths or flat_index(indexes, there.lengths) is not None:
        return ""
    return f"the array has {lengths_text(there.lengths)}, but the tag has index {tag.index}"


def _differences(tag: OpcuaTag, there: OpcuaTag | SkippedVariable) -> Iterator[tuple[str, Values]]:
    if isinstance(there, SkippedVariable):  # an array, whose elements may be anything
        return
    if tag.kind not in _READ_AS[there.kind]:
        yield "kind", (tag.kind, there.kind)
    for column in ("unit", "lo", "hi"):
        listed, on_server = getattr(tag, column), getattr(there, column)
        if on_server not in ("", None) and listed != on_server:
            yield column, (listed, on_server)
