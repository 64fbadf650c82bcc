"""Compares the stored texts of channels with what was published."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from simulator.compare_samples import ANSWER_US, BAD, OVERFLOW
from simulator.comparison import EXAMPLES, Comparison, Gaps
from simulator.truth import ROW, PublishedText

Text: TypeAlias = tuple[str, int, str | None, int]  # channel, time µs, text, status


def compare_texts(
    truth: list[PublishedText],
    stored: list[Text],
    first: dict[str, int],
    window: tuple[int, int],
    index: dict[str, int],
    gaps: Gaps,
) -> Comparison:
    """OPC UA texts by (channel, time), those of devices by order: published if different from the last answer."""
    modbus: dict[str, list[PublishedText]] = {}
    published: dict[tuple[str, int], PublishedText] = {}
    for sent in truth:
        if sent.via == "modbus":
            modbus.setdefault(sent.name, []).append(sent)
        elif max(window[0], first.get(sent.name, 0)) <= sent.time < window[1]:
            published[sent.name, sent.time] = sent
    ours = [(name, at, text, status) for name, at, text, status in stored if name not in modbus]
    found = {(name, at): (text, status) for name, at, text, status in ours}
    result = Comparison(
        len(published), len(stored), len(ours) - len(found), invented=len(found.keys() - published.keys())
    )
    for key in found.keys() & published.keys():
        sent_text, (text, status) = published[key], found[key]
        sent_status, status = (code & ~OVERFLOW for code in (sent_text.status, status))
        result.altered += status != sent_status or (not sent_status & int(BAD) and text != sent_text.text)
    _count_missing_texts(result, [published[key] for key in sorted(published.keys() - found.keys())], index, gaps)
    result.examples += [f"invented: {key}" for key in sorted(found.keys() - published.keys())[:EXAMPLES]]
    for name, answers in modbus.items():
        of_name = [t for t in stored if t[0] == name]
        _device_texts(result, name, answers, of_name, first.get(name, 0), window, index, gaps)
    return result


def _count_missing_texts(result: Comparison, texts: list[PublishedText], index: dict[str, int], gaps: Gaps) -> None:
    rows = np.zeros(len(texts), ROW)
    for row, text in zip(rows, texts, strict=True):
        row["tag"], row["time"], row["at"] = index[text.name], text.time, text.at
    result.count_missing(list(index), rows, gaps)


def _device_texts(
    result: Comparison,
    name: str,
    sent: list[PublishedText],
    stored: list[Text],
    first: int,
    window: tuple[int, int],
    index: dict[str, int],
    gaps: Gaps,
) -> None:
    times = np.array([text.time for text in sent], np.int64)
    answered: set[int] = set()
    for _, at, text, status in stored:
        answer = int(np.searchsorted(times, at, "right")) - 1
        if status & int(BAD):
            continue
        if answer < 0:
            result.invented += 1
            result.examples.append(f"invented: {name} at {at} µs = {text!r}")
            continue
        answered.add(answer)
        if text != sent[answer].text:
            result.altered += 1
            result.examples.append(f"altered: {name} at {at} µs = {text!r}, not {sent[answer].text!r}")
    begun = int(np.searchsorted(times, first, "right")) - 1
    counts = {
        i for i, at in enumerate(times.tolist()) if i >= max(0, begun) and window[0] <= at < window[1] - ANSWER_US
    }
    result.published += len(counts | answered)
    _count_missing_texts(result, [sent[i] for i in sorted(counts - answered)], index, gaps)
