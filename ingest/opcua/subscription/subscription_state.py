"""The subscriptions of a source: what was requested, and what the server made of it.

They are saved, so that a restarted process, even after a kill, continues them. Two kinds of notes in the spool:
``opcua:SOURCE`` has the subscriptions and their items, written when they are created; ``opcua:SOURCE:SUBSCRIPTION`` has
the progress of one, written with every notification.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import astuple, dataclass, field
from secrets import randbits
from typing import Any, TypeAlias

from core.config.addresses.value_path import joined
from core.errors import SourceError
from core.opcua.namespaces import Namespaces
from core.opcua.service import Operations
from ingest.appender import Notes
from ingest.notes import Note
from ingest.opcua.decode.members import MemberChannel
from ingest.opcua.decode.structures import Structures
from ingest.opcua.subscription.sequence import SequenceTracker
from ingest.opcua.subscription.tags import ReadTarget, SampleTimes

_KEY_BITS = 31  # the highest bit of a handle stays: it tells structures apart

Parameters: TypeAlias = tuple[float, int, bool, float]  # sampling interval (s), queue size, discard oldest, deadband


@dataclass(frozen=True, slots=True)
class Item:
    """A monitored item as requested."""

    id: int  # assigned by the server
    node_id: str  # the address in the tag list
    parameters: Parameters
    queue_size: int = 0  # revised; 0: unknown
    namespace: int | None = None  # index that the namespace URI had; None: the address has no URI
    index: str | None = None  # the element of an array that is read
    whole_array: bool = False  # all elements are sent, not only that one
    member: str = ""  # the member of a structure that is read
    handle: int | None = None  # handle if the channels of a structure share the item; None: the channel id

    @property
    def target(self) -> ReadTarget:
        """Node, element and member that are read."""
        return self.node_id, self.index, self.member


@dataclass(frozen=True, slots=True)
class Refusal:
    """A channel rejected by the server."""

    node_id: str  # the requested one
    reason: str  # name of the status code, or a sentence
    index: str | None = None  # the element of an array that is read
    member: str = ""  # the member of a structure that is read

    @property
    def target(self) -> ReadTarget:
        """Node, element and member that were requested."""
        return self.node_id, self.index, self.member


@dataclass(frozen=True, slots=True)
class EventItem:
    """The monitored item of a node whose events are recorded."""

    id: int | None  # assigned by the server; None: the server rejected it
    namespace: int | None = None  # index that the namespace URI had; None: the address has no URI


@dataclass(frozen=True, slots=True)
class Server:
    """A server, from one start of it to the next."""

    address: str = ""
    start: int = 0  # µs, its StartTime; 0: unknown

    def continues(self, before: Server) -> bool:
        """Return whether it may still have subscriptions from before. Others may have their ids after a restart."""
        return self == before and self.start > 0


@dataclass(slots=True)
class Subscription:
    """One subscription on the server."""

    id: int
    requested_interval: float  # s, requested publishing interval
    interval: float  # s, revised publishing interval
    keep_alive: float  # s, maximum silence
    items: dict[int, Item] = field(default_factory=dict)  # by channel id
    tracker: SequenceTracker = field(default_factory=SequenceTracker)
    changing: bool = False  # items are being created or deleted: which ones exist is uncertain
    event_items: dict[str, EventItem] = field(default_factory=dict)  # by address; it has these, or items of channels
    messages: int | None = field(default=None, compare=False)  # since its transfer to this session; None: made in it
    key: int = field(default_factory=lambda: randbits(_KEY_BITS))  # its client handles are ours XOR this number
    requested: frozenset[int] = field(default=frozenset(), compare=False)  # handles of items being created
    # None: unproven since its transfer; False: the id is that of another client's subscription now
    is_ours: bool | None = field(default=True, compare=False)
    lists_available: bool = field(default=False, compare=False)  # the server lists available sequence numbers
    # Sequence number possibly used to notify the previous session of the transfer
    transferred_status: int = field(default=0, compare=False)
    published: int = field(default=0, compare=False)  # µs, by the server's clock: the last message in order
    times_before_run: SampleTimes | None = field(default=None, compare=False)  # before the current run of messages

    @property
    def has_published(self) -> bool:
        """Return whether it has published in this session."""
        return self.messages != 0

    @property
    def sampled_to(self) -> int:
        """Time (µs) up to which everything sampled by the server is on disk."""
        return self.tracker.complete_to - round(self.interval * 1e6)

    @property
    def handles(self) -> set[int]:
        """The handles of its items, before they are combined with the key."""
        of_channels = {channel if item.handle is None else item.handle for channel, item in self.items.items()}
        return of_channels | self.requested | set(range(len(self.event_items)))

    def prove(self, has_our_handles: bool) -> None:
        """Handles of its items came. Raises SourceError if none is ours.

        Ids and handles of many clients begin at 1, and subscription ids again after a restart of the server. Nobody
        else has handles that are combined with a random key.
        """
        self.is_ours = has_our_handles
        if not has_our_handles:
            raise SourceError(f"subscription {self.id} belongs to another client")

    def fits(self, namespaces: Namespaces, whole_arrays: bool) -> bool:
        """Return whether its items mean in this session what they were created for.

        If a namespace has another index now, its items may belong to other variables.
        """
        return all(
            item.namespace == namespaces.index(item.node_id)
            and (item.index is None or item.handle is not None or item.whole_array == whole_arrays)
            for item in self.items.values()
        ) and all(item.namespace == namespaces.index(node) for node, item in self.event_items.items())


@dataclass(slots=True)
class SubscriptionState:
    """All subscriptions of a session, and the rejected channels."""

    subscriptions: dict[int, Subscription] = field(default_factory=dict)  # by id
    refused: dict[int, Refusal] = field(default_factory=dict)  # by channel id
    whole_arrays: bool = False  # the server does not support IndexRange
    definitions: dict[int, list[str]] = field(default_factory=dict)  # by channel id: the last Tags.definition
    handles: int = 0  # client handles that structures got until now: none is used twice
    structures: Structures = field(default_factory=Structures, compare=False)
    # Of this session:
    creating: Operations = field(default_factory=Operations, compare=False)
    modifying: Operations = field(default_factory=Operations, compare=False)
    deleting: Operations = field(default_factory=Operations, compare=False)
    reading: Operations = field(default_factory=Operations, compare=False)

    def begin_session(self, items: int, nodes: int) -> None:
        """The server announces that a call may have so many monitored items, and a Read so many nodes."""
        self.creating, self.modifying, self.deleting = Operations(items), Operations(items), Operations(items)
        self.reading = Operations(nodes)

    def shared_items(self) -> dict[int, tuple[str, list[MemberChannel]]]:
        """The address and the channels of each item that several channels share, by client handle."""
        shared_by_handle: dict[int, tuple[str, list[MemberChannel]]] = {}
        for subscription in self.subscriptions.values():
            for channel, item in subscription.items.items():
                if item.handle is not None:
                    shared = shared_by_handle.setdefault(item.handle, (item.node_id, []))
                    shared[1].append(MemberChannel(channel, joined(item.member, item.index)))
        return shared_by_handle

    def by_interval(self, requested_interval: float) -> Subscription | None:
        """The subscription of one publishing interval."""
        of_channels = (s for s in self.subscriptions.values() if not s.event_items)
        return next((s for s in of_channels if s.requested_interval == requested_interval), None)


def note_name(source_id: int, subscription: Subscription) -> str:
    """Name of the note with the progress of a subscription."""
    return Note.OPCUA.of(source_id, subscription.id)


def encode_state(source_id: int, server: Server, state: SubscriptionState, before: Mapping[str, str]) -> Notes:
    """The notes for ``server``; notes of deleted subscriptions are removed."""
    saved = {
        "address": server.address,
        "start": server.start,
        "bad": {str(channel): astuple(refusal) for channel, refusal in state.refused.items()},
        "read": state.definitions,
        "handles": state.handles,
        "subscriptions": [
            {
                **{"id": s.id, "asked": s.requested_interval, "interval": s.interval, "keep_alive": s.keep_alive},
                **{"key": s.key, "changing": s.changing, "items": {str(c): astuple(i) for c, i in s.items.items()}},
                **{"events": {node: astuple(item) for node, item in s.event_items.items()}},
            }
            for s in state.subscriptions.values()
        ],
    }
    tracker = {note_name(source_id, s): s.tracker.note() for s in state.subscriptions.values()}
    obsolete = {n: None for n in before if n.startswith(Note.OPCUA.of(source_id) + ":") and n not in tracker}
    return {Note.OPCUA.of(source_id): json.dumps(saved), **tracker, **obsolete}


def decode_state(
    source_id: int, addresses: Container[str], notes: Mapping[str, str]
) -> tuple[SubscriptionState, Server]:
    """The saved state, and the server that has the subscriptions; without address: none of ``addresses``."""
    saved = json.loads(notes.get(Note.OPCUA.of(source_id), "{}"))
    owner = saved.get("address", "")
    owner = owner if owner in addresses else ""
    state = SubscriptionState()
    if owner:
        state.refused = {int(channel): Refusal(*r) for channel, r in saved.get("bad", {}).items()}
        state.definitions = {int(channel): meaning for channel, meaning in saved.get("read", {}).items()}
    state.handles = saved.get("handles", 0)
    for s in saved.get("subscriptions", ()):
        tracker = SequenceTracker.read(notes.get(Note.OPCUA.of(source_id, s["id"]), "1 0"))
        items = {int(channel): _item(*item) for channel, item in s.get("items", {}).items()}
        events = {node: EventItem(*item) for node, item in s.get("events", {}).items()}
        state.subscriptions[s["id"]] = Subscription(
            s["id"], s["asked"], s["interval"], s["keep_alive"], items, tracker, s.get("changing", False), events,
            key=s.get("key", 0),
        )  # fmt: skip
    return state, Server(owner, saved.get("start", 0) if owner else 0)


def _item(number: int, node_id: str, parameters: list[Any], *others: Any) -> Item:
    sampling, queue_size, discard_oldest, deadband = parameters
    return Item(number, node_id, (sampling, queue_size, discard_oldest, deadband), *others)
