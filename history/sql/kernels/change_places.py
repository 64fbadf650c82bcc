"""Places of changes: the clearest windows, and where a step or a kink fits best in each.

Scores compare windows around each bucket, and the highest one is not where a step is: a kink before
it may have a higher one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from core.batch import Float64s

LEVEL, SLOPE, SPREAD = range(3)
_REST = 1 / 2  # of the squares that a step or a kink leaves: two steps that leave no more are a better account
_ROUNDS = 4  # in which the places of two steps are fitted, each beside the other
_FEWEST = 3  # buckets on each side of the place of a change: smoothed values leave no fewer


def clear_windows(candidates: list[tuple[int, int, int, float]]) -> Iterator[tuple[int, int, int, float]]:
    """Kind, side, bucket and score of changes: of narrow windows first, and of wider ones without those of the narrow.

    Each is then judged by the clearest window in which there is no other.
    """
    if not candidates:
        return
    kind, side, bucket, score = (np.array(column) for column in zip(*candidates, strict=True))
    clearest = np.lexsort((bucket, kind, side, -np.round(score, 6)))
    rest, chosen = clearest[np.argsort(side[clearest], kind="stable")], list[int]()
    while len(rest):
        chosen.append(int(rest[0]))
        rest = rest[np.abs(bucket[rest] - bucket[rest[0]]) > side[rest]]
    for row in chosen:
        near = np.abs(bucket[clearest] - bucket[row]) <= side[row]
        for other in chosen:
            if other != row:
                apart = np.minimum(np.abs(bucket[clearest] - bucket[other]), abs(bucket[row] - bucket[other]))
                near &= apart > side[clearest]
        best = int(clearest[near][0]) if near.any() else row
        yield int(kind[best]), int(side[best]), int(bucket[best]), float(score[best])


def fitted(
    values: Float64s, changes: Iterable[tuple[int, int, int, float]], least_score: float
) -> Iterator[tuple[int, slice, int, tuple[int, int, int, float]]]:
    """Kind, window and bucket of changes of one channel, placed by least squares, and the change.

    ``changes``: kind, side, bucket and score. Each window has the better of a step and a kink where it fits best, or
    two steps, there and back, that leave little of what neither explains. Windows end at clearer changes; what is no
    change without those, such as the second of two kinks in place of a step, is none.
    """
    places = list[int]()
    for change in sorted(changes, key=lambda change: -round(change[3], 6)):
        clearest, side, bucket, score = change
        kind, window, at = clearest, slice(bucket - side, bucket + side), bucket
        if clearest != SPREAD:
            chance = _fits(values[window])[clearest, side - 1] / score**2
            window = slice(
                max([window.start, *(place + 1 for place in places if place <= bucket)]),
                min([window.stop, *(place - 1 for place in places if place > bucket)]),
            )
            if window.stop - window.start < 2 * _FEWEST:
                continue
            fits = _fits(values[window])[:, _FEWEST - 1 : 1 - _FEWEST]
            kind, place = divmod(int(fits.argmax()), fits.shape[1])
            if fits[kind, place] < chance * least_score**2:
                continue
            at = window.start + _FEWEST + place
            step = _FEWEST + int(fits[LEVEL].argmax())
            if steps := _there_and_back(values[window], step, float(fits[kind, place])):
                away, back = (window.start + edge for edge in steps)
                places.append(away)
                yield LEVEL, slice(window.start, back), away, change
                kind, window, at = LEVEL, slice(away, window.stop), back
        places.append(at)
        yield kind, window, at, change


def _there_and_back(values: Float64s, place: int, explained_by_one: float) -> tuple[int, int] | None:
    """Places of two steps of one size, there and back, beside a line; None: they leave hardly less than one change.

    ``place``: of one step; ``explained_by_one``: squares that one change explains.
    """
    off, x = _off_line(values)
    sums, places = (np.append(0.0, np.cumsum(part)) for part in (off, x))
    inner = np.arange(_FEWEST, len(values) - _FEWEST + 1)
    other = place
    for _ in range(_ROUNDS):
        n = np.abs(inner - place)
        explained = np.square(sums[inner] - sums[place]) / np.maximum(
            n - n**2 / len(x) - np.square(places[inner] - places[place]) / (x @ x), 1e-9
        )
        explained[n < _FEWEST] = 0.0
        other, place = place, int(inner[explained.argmax()])
    squares = float(off @ off)
    if squares - float(explained.max()) >= _REST * (squares - explained_by_one):
        return None
    return min(place, other), max(place, other)


def _off_line(values: Float64s) -> tuple[Float64s, Float64s]:
    """Values without their line, and places from the middle one."""
    x: Float64s = np.arange(len(values), dtype=np.float64) - (len(values) - 1) / 2
    off: Float64s = values - values.mean()
    off -= (x @ off) / (x @ x) * x
    return off, x


def _fits(values: Float64s) -> Float64s:
    """Squares that a step and a kink at each position between the values explain beside a line, (2, positions)."""
    i, (away, x) = np.arange(len(values), dtype=np.float64), _off_line(values)
    n = len(i) - i[1:]  # behind the change
    sums, moments = _behind(away), _behind(away * i)
    places, squares = _behind(x), _behind(x * i)
    moments, squares = (by_place - (i[1:] - 0.5) * of for by_place, of in ((moments, sums), (squares, places)))
    step = np.square(sums) / (n - n**2 / len(i) - places**2 / (x @ x))
    kink = np.square(moments) / (n * (4 * n**2 - 1) / 12 - n**4 / 4 / len(i) - squares**2 / (x @ x))
    return np.array([step, kink])


def _behind(values: Float64s) -> Float64s:
    """Sums from each value but the first to the last."""
    sums: Float64s = np.cumsum(values[::-1])[-2::-1]
    return sums
