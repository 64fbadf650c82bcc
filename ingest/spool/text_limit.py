"""Texts of devices and gateways have a limit: each is stored, sealed, sent to browsers and printed as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import is_not
from typing import Any

from core.batch import Event, EventBatch

MAX_TEXT = 64 * 1024  # bytes of UTF-8


def limited(batch: EventBatch, most: int) -> EventBatch:
    """The batch with its texts cut to ``most`` bytes, which include the mark that says so."""
    events = [event if _is_short(event, most) else _limited(event, most) for event in batch.events]
    changed = any(map(is_not, events, batch.events))
    return replace(batch, events=events) if changed else batch


def _is_short(event: Event, most: int) -> bool:
    """Whether it fits at first sight, as a value of a text channel usually does."""
    return not event.detail and (event.text is None or len(event.text) * 4 <= most)


def _limited(event: Event, most: int) -> Event:
    text = event.text if event.text is None else _cut(event.text, most)
    detail = _cut_within(event.detail, most)
    return event if text is event.text and detail is event.detail else replace(event, text=text, detail=detail)


def _cut_within(value: Any, most: int) -> Any:
    """A value of a detail: the same object if nothing in it is cut."""
    match value:
        case str():
            return _cut(value, most)
        case list() | tuple():
            items = [_cut_within(one, most) for one in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        case Mapping():
            fields = {name: _cut_within(one, most) for name, one in value.items()}
            return fields if any(fields[name] is not old for name, old in value.items()) else value
    return value


def _cut(text: str, most: int) -> str:
    if len(text) * 4 <= most:
        return text
    content = text.encode(errors="replace")
    if len(content) <= most:
        return text
    mark = f"… (cut: {len(content):,} bytes)"
    return content[: most - len(mark.encode())].decode(errors="ignore") + mark
