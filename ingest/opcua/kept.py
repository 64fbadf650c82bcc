"""What a process that starts anew, even after a kill, must know to go on with a server's subscriptions.

Two kinds of notes in the spool: ``opcua:SOURCE`` names the subscriptions and their items, written when they are made;
``opcua:SOURCE:SUBSCRIPTION`` how far each has come, written with every notification.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from ingest.appender import Notes
from ingest.opcua.items import Item, Refusal, Subscribed, Subscription
from ingest.opcua.progress import Progress


def note_of(source_id: int, subscription: Subscription) -> str:
    """The name of the note that tells how far it has come."""
    return f"opcua:{source_id}:{subscription.id}"


def write(source_id: int, address: str, subscribed: Subscribed, before: Mapping[str, str]) -> Notes:
    """The notes that say so, of the server at ``address``; those of subscriptions that are no more are removed."""
    facts = {
        "address": address,
        "bad": {str(channel): astuple(refusal) for channel, refusal in subscribed.bad.items()},
        "read": subscribed.read,
        "subscriptions": [
            {
                **{"id": s.id, "asked": s.asked, "interval": s.interval, "keep_alive": s.keep_alive},
                **{"changing": s.changing, "items": {str(c): astuple(item) for c, item in s.items.items()}},
            }
            for s in subscribed.subscriptions.values()
        ],
    }
    progress = {note_of(source_id, s): s.progress.note() for s in subscribed.subscriptions.values()}
    gone = {n: None for n in before if n.startswith(f"opcua:{source_id}:") and n not in progress}
    return {f"opcua:{source_id}": json.dumps(facts), **progress, **gone}


def read(source_id: int, address: str, notes: Mapping[str, str]) -> tuple[Subscribed, bool]:
    """What was had before, and whether it is of use: of the server at ``address``, and in this form of the notes."""
    facts = json.loads(notes.get(f"opcua:{source_id}", "{}"))
    useful = facts.get("address") == address
    subscribed = Subscribed()
    if useful:
        subscribed.bad = {int(channel): Refusal(*r) for channel, r in facts.get("bad", {}).items()}
        subscribed.read = {int(channel): meaning for channel, meaning in facts.get("read", {}).items()}
    for s in facts.get("subscriptions", ()):
        progress = Progress.read(notes.get(f"opcua:{source_id}:{s['id']}", "1 0"))
        items = {int(channel): _item(*item) for channel, item in s.get("items", {}).items()}
        subscribed.subscriptions[s["id"]] = Subscription(
            s["id"], s["asked"], s["interval"], s["keep_alive"], items, progress, s.get("changing", False)
        )
    return subscribed, useful


def _item(number: int, node_id: str, parameters: list[Any], revised: int = 0) -> Item:
    sampling, queue_size, discard_oldest, deadband = parameters
    return Item(number, node_id, (sampling, queue_size, discard_oldest, deadband), revised)
