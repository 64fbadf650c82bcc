"""What the tags ask for beside what the server has: only the difference is made, and in an order that loses nothing.

A channel that moves to another subscription has its new item before the old one goes; the two send the same samples,
which are one in the table. An item goes only when its queue was published: what it held came before the new item did.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ingest.opcua.items import Subscribed, parameters
from ingest.opcua.tags import Tags


@dataclass(frozen=True, slots=True)
class Difference:
    """Channel ids, and items by subscription."""

    create: list[int] = field(default_factory=list)  # channels that no item of their subscription speaks for
    modify: dict[int, list[int]] = field(default_factory=dict)  # subscription → channels of other parameters
    replace: list[int] = field(default_factory=list)  # channels of other nodes: the old item must go first
    obsolete: dict[int, list[int]] = field(default_factory=dict)  # subscription → item ids, once they are published
    retired: dict[int, list[int]] = field(default_factory=dict)  # subscription → item ids that nobody wants any more

    def __bool__(self) -> bool:
        return bool(self.create or self.modify or self.replace or self.obsolete or self.retired)


def difference(tags: Tags, subscribed: Subscribed) -> Difference:
    """Compare; nodes that were refused are not asked for again."""
    found = Difference()
    had: set[int] = set()
    for subscription in subscribed.subscriptions.values():
        for channel, item in subscription.items.items():
            if tags.place(channel) is None:
                found.retired.setdefault(subscription.id, []).append(item.id)
                continue
            interval, wanted = parameters(tags, channel)
            if tags.tag(channel).address != item.node_id:
                found.replace.append(channel)
                found.obsolete.setdefault(subscription.id, []).append(item.id)
            elif subscription.asked != interval:
                found.obsolete.setdefault(subscription.id, []).append(item.id)
            else:
                had.add(channel)
                if item.parameters != wanted:
                    found.modify.setdefault(subscription.id, []).append(channel)
    refused = {c for c, r in subscribed.bad.items() if tags.place(c) is not None and tags.tag(c).address == r.node_id}
    others = set(found.replace)
    found.create.extend(c for c in tags.ids.tolist() if c not in had and c not in refused and c not in others)
    return found
