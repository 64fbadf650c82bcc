"""What a process that starts anew, even after a kill, must know to go on with a server's subscriptions.

Two kinds of notes in the spool: ``opcua:SOURCE`` names the subscriptions, written when they are made;
``opcua:SOURCE:SUBSCRIPTION`` how far each has come, written with every notification.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from ingest.appender import Notes
from ingest.config.model import OpcuaSource
from ingest.opcua.items import Subscribed, Subscription
from ingest.opcua.progress import Progress


def digest(source: OpcuaSource, channel_ids: Mapping[str, int]) -> str:
    """Of all that a subscription depends on. Client handles are places in the tag list: another list, other handles."""
    facts = [
        [source.address, source.publishing_interval, source.sampling_interval, source.queue_size],
        [source.discard_oldest],
        [[t.address, channel_ids[t.name], t.interval, t.deadband, t.kind == "text"] for t in source.tags],
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def note_of(source_id: int, subscription: Subscription) -> str:
    """The name of the note that tells how far it has come."""
    return f"opcua:{source_id}:{subscription.id}"


def write(source_id: int, digested: str, subscribed: Subscribed, before: Mapping[str, str]) -> Notes:
    """The notes that say so; those of subscriptions that are no more are removed."""
    facts = {
        "digest": digested,
        "bad": {str(i): reason for i, reason in subscribed.bad.items()},
        "subscriptions": [
            {"id": s.id, "asked": s.asked, "interval": s.interval, "keep_alive": s.keep_alive, "tags": s.tags}
            for s in subscribed.subscriptions.values()
        ],
    }
    progress = {note_of(source_id, s): s.progress.note() for s in subscribed.subscriptions.values()}
    gone = {n: None for n in before if n.startswith(f"opcua:{source_id}:") and n not in progress}
    return {f"opcua:{source_id}": json.dumps(facts), **progress, **gone}


def read(source_id: int, digested: str, notes: Mapping[str, str]) -> tuple[Subscribed, bool]:
    """What was had before, and whether it is still what the configuration asks for."""
    facts = json.loads(notes.get(f"opcua:{source_id}", "{}"))
    subscribed = Subscribed(bad={int(i): reason for i, reason in facts.get("bad", {}).items()})
    for s in facts.get("subscriptions", ()):
        progress = Progress.read(notes.get(f"opcua:{source_id}:{s['id']}", "1 0"))
        subscribed.subscriptions[s["id"]] = Subscription(
            s["id"], s["asked"], s["interval"], s["keep_alive"], s["tags"], progress
        )
    return subscribed, facts.get("digest") == digested
