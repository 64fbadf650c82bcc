"""Compares the configured tags with the server's monitored items; only differences are applied, without data loss.

A channel that moves to another subscription gets its new item before the old one is deleted. Both send the same
samples, stored once. An item is deleted only after its queue was published, with what it sampled before the new one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ingest.opcua.subscription.items import parameters
from ingest.opcua.subscription.subscription_state import SubscriptionState
from ingest.opcua.subscription.tags import Tags


@dataclass(frozen=True, slots=True)
class Difference:
    """Channel ids, and items by subscription."""

    create: list[int] = field(default_factory=list)  # channels without an item in their subscription
    modify: dict[int, list[int]] = field(default_factory=dict)  # subscription → channels with changed parameters
    replace: list[int] = field(default_factory=list)  # channels with another Tags.place_of: the old item goes first
    obsolete: dict[int, list[int]] = field(default_factory=dict)  # subscription → channels, to delete once published
    retired: dict[int, list[int]] = field(default_factory=dict)  # subscription → channels without a tag

    def __bool__(self) -> bool:
        return bool(self.create or self.modify or self.replace or self.obsolete or self.retired)


def difference(tags: Tags, state: SubscriptionState) -> Difference:
    """Compare; rejected nodes are not requested again."""
    found = Difference()
    unchanged: set[int] = set()
    for subscription in state.subscriptions.values():
        for channel, item in subscription.items.items():
            if tags.place(channel) is None:
                found.retired.setdefault(subscription.id, []).append(channel)
                continue
            interval, wanted = parameters(tags, channel)
            if tags.place_of(channel) != item.place:
                found.replace.append(channel)
                found.obsolete.setdefault(subscription.id, []).append(channel)
            elif subscription.requested_interval != interval:
                found.obsolete.setdefault(subscription.id, []).append(channel)
            else:
                unchanged.add(channel)
                if item.parameters != wanted:
                    found.modify.setdefault(subscription.id, []).append(channel)
    refused = {c for c, r in state.refused.items() if tags.place(c) is not None and tags.place_of(c) == r.place}
    others = set(found.replace)
    found.create.extend(c for c in tags.ids.tolist() if c not in unchanged and c not in refused and c not in others)
    return found
