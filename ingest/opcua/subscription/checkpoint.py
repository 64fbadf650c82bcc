"""The saved state with which a restarted process, even after a kill, continues a server's subscriptions.

Two kinds of notes in the spool: ``opcua:SOURCE`` has the subscriptions and their items, written when they are created;
``opcua:SOURCE:SUBSCRIPTION`` has the progress of one, written with every notification.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import astuple
from typing import Any

from ingest.appender import Notes
from ingest.opcua.subscription.sequence import SequenceTracker
from ingest.opcua.subscription.subscription_state import (
    EventItem,
    Item,
    Refusal,
    Server,
    Subscription,
    SubscriptionState,
)


def note_name(source_id: int, subscription: Subscription) -> str:
    """Name of the note with the progress of a subscription."""
    return f"opcua:{source_id}:{subscription.id}"


def encode(source_id: int, server: Server, state: SubscriptionState, before: Mapping[str, str]) -> Notes:
    """The notes for ``server``; notes of deleted subscriptions are removed."""
    facts = {
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
    gone = {n: None for n in before if n.startswith(f"opcua:{source_id}:") and n not in tracker}
    return {f"opcua:{source_id}": json.dumps(facts), **tracker, **gone}


def decode(source_id: int, addresses: Container[str], notes: Mapping[str, str]) -> tuple[SubscriptionState, Server]:
    """The saved state, and the server that has the subscriptions; without address: none of ``addresses``."""
    facts = json.loads(notes.get(f"opcua:{source_id}", "{}"))
    owner = facts.get("address", "")
    owner = owner if owner in addresses else ""
    state = SubscriptionState()
    if owner:
        state.refused = {int(channel): Refusal(*r) for channel, r in facts.get("bad", {}).items()}
        state.definitions = {int(channel): meaning for channel, meaning in facts.get("read", {}).items()}
    state.handles = facts.get("handles", 0)
    for s in facts.get("subscriptions", ()):
        tracker = SequenceTracker.read(notes.get(f"opcua:{source_id}:{s['id']}", "1 0"))
        items = {int(channel): _item(*item) for channel, item in s.get("items", {}).items()}
        events = {node: EventItem(*item) for node, item in s.get("events", {}).items()}
        state.subscriptions[s["id"]] = Subscription(
            s["id"], s["asked"], s["interval"], s["keep_alive"], items, tracker, s.get("changing", False), events,
            key=s.get("key", 0),
        )  # fmt: skip
    return state, Server(owner, facts.get("start", 0) if owner else 0)


def _item(number: int, node_id: str, parameters: list[Any], *others: Any) -> Item:
    sampling, queue_size, discard_oldest, deadband = parameters
    return Item(number, node_id, (sampling, queue_size, discard_oldest, deadband), *others)
