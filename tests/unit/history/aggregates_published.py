"""Examples of OPC 10000-13: Annex A, Historian 1 to 5, and their results in AggregateExamples.csv (1.05, see A.1.1).

All numbers here are published ones. A result is a value and letters: u UncertainDataSubNormal, U Uncertain, B Bad, c
Calculated, i Interpolated, p Partial; - is BadNoData. Intervals last 5 s, those of NumberOfTransitions and
DurationInState 16 s. Times of DurationInState are in ms.
"""

from __future__ import annotations

from dataclasses import dataclass

Sample = tuple[float, float | None, int]  # s since 12:00:00, value, StatusCode

GOOD, UNCERTAIN, BAD = 0, 0x40000000, -0x80000000
LENGTH = 100.0  # s
END_OF_DATA = 90.0  # s: "no more entries, awaiting next scan"


@dataclass(frozen=True, slots=True)
class Historian:
    """A data set, and its AggregateConfiguration."""

    samples: list[Sample]
    stepped: bool
    treat_uncertain_as_bad: bool
    percent: int  # PercentDataBad and PercentDataGood
    use_sloped_extrapolation: bool


def _samples(*values: float) -> list[Sample]:
    """Samples of Historian 2 to 5, whose times and qualities are the same."""
    times = (2, 25, 28, 39, 48, 52, 72, 77, 83, 86, 90)
    made: list[Sample] = [(time, value, GOOD) for time, value in zip(times, values, strict=True)]
    made[7] = (77, values[7], UNCERTAIN)
    return sorted([*made, (42, None, BAD)], key=lambda sample: sample[0])


_ONE: list[Sample] = [(10 * i, 10 * i, {4: BAD, 7: UNCERTAIN}.get(i, GOOD)) for i in range(1, 10)]
_TWO = _samples(10, 20, 25, 30, 40, 50, 60, 70, 70, 80, 90)

HISTORIANS = {
    1: Historian(_ONE, False, False, 100, False),
    2: Historian(_TWO, False, True, 100, True),
    3: Historian(_TWO, True, True, 50, False),
    4: Historian(_samples(1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 1), True, True, 100, False),
    5: Historian(_samples(10, 20, 10, 30, 30, 50, 30, 70, 70, 80, 70), False, False, 100, False),
}

RESULTS: dict[str, dict[int, str]] = {
    "Interpolative": {
        1: "- - 10 15i 20 25i 30 35ui 40ui 45ui 50 55i 60 65ui 70U 75ui 80 85i 90 90ui",
        2: """
            - 11.304i 13.478i 15.652i 17.826i 20 25.909i 28.182i 31.111ui 36.667ui
            45i 51.5i 54i 56.5i 59i 62.727ui 67.273ui 76.667i 90 102.5ui
        """,
        3: "- 10i 10i 10i 10i 20 25i 25i 30i 30ui 40i 50i 50i 50i 50i 60i 60ui 70i 90 90ui",
        5: """
            - 11.3043i 13.4783i 15.6522i 17.8261i 20 13.6364i 22.7273i 30ui 30ui
            40i 47i 42i 37i 32i 54ui 70ui 76.6667i 70 70ui
        """,
    },
    "TimeAverage": {
        1: """
            - - 12.5c 17.5c 22.5c 27.5c 32.5uc 37.5uc 42.5uc 47.5uc
            52.5c 57.5c 62.5uc 67.5uc 72.5uc 77.5uc 82.5c 87.5c 90ucp -
        """,
        2: """
            10.652ucp 12.391c 14.565c 16.739c 18.913c 23.682c 27.045c 29.384uc 33.889uc 40uc
            49.45c 52.75c 55.25c 57.75c 60.618uc 65uc 70.515uc 83.667c 96.25ucp -
        """,
        3: """
            10.652ucp 12.391c 14.565c 16.739c 18.913c 23.682c 27.045c 29.384uc 33.889uc 40uc
            49.45c 52.75c 55.25c 57.75c 60.618uc 65uc 70.515uc 83.667c 90ucp -
        """,
        5: """
            10.6522ucp 12.3913c 14.5652c 16.7391c 18.913c 13.7273c 18.1818c 27.0909uc 30uc 32uc
            47.1c 44.5c 39.5c 34.5c 37.6uc 66.8uc 71.3333uc 75.6667c 70ucp -
        """,
    },
    "TimeAverage2": {
        1: "- - 12.5c 17.5c 22.5c 27.5c 30c 30c - - 52.5c 57.5c 62.5c 67.5c 72.5c 77.5c 82.5c 87.5c 90cp -",
        2: """
            10.652ucp 12.391c 14.565c 16.739c 18.913c 23.682c 27.045c 29.273uc Bc 42.5uc
            49.45c 52.75c 55.25c 57.75c 59.8uc Bc 73.333uc 83.667c Bcp -
        """,
        3: "10cp 10c 10c 10c 10c 22c 25c 26c 30uc 40uc 46c 50c 50c 50c 56c 60uc 70uc 78c 90cp -",
        5: """
            10.6522ucp 12.3913c 14.5652c 16.7391c 18.913c 13.7273c 18.1818c 27.0909c 30uc 35uc
            47.1c 44.5c 39.5c 34.5c 37.6c 66.8c 71.3333c 75.6667c 70cp -
        """,
    },
    "Total": {
        1: """
            - - 62.5c 87.5c 112.5c 137.5c 162.5uc 187.5uc 212.5uc 237.5uc
            262.5c 287.5c 312.5uc 337.5uc 362.5uc 387.5uc 412.5c 437.5c 450ucp -
        """,
        2: """
            31.957ucp 61.957c 72.826c 83.696c 94.565c 118.409c 135.227c 146.919uc 169.444uc 200uc
            247.25c 263.75c 276.25c 288.75c 303.091uc 325uc 352.576uc 418.333c 481.25ucp -
        """,
        3: "30ucp 50c 50c 50c 50c 110c 125c 130c 150uc 170uc 230c 250c 250c 250c 280c 300uc 320uc 390c 450ucp -",
        5: """
            31.9565ucp 61.9565c 72.8261c 83.6957c 94.5652c 68.6364c 90.9091c 135.4545uc 150uc 160uc
            235.5c 222.5c 197.5c 172.5c 188uc 334uc 356.6667uc 378.3333c 350ucp -
        """,
    },
    "Total2": {
        1: """
            - - 62.5c 87.5c 112.5c 137.5c 150c 150c - -
            262.5c 287.5c 312.5c 337.5c 362.5c 387.5c 412.5c 437.5c 0.09cp -
        """,
        2: """
            31.957ucp 61.957c 72.826c 83.696c 94.565c 118.409c 135.227c 146.364uc Bc 85uc
            247.25c 263.75c 276.25c 288.75c 299uc Bc 146.667uc 418.333c Bcp -
        """,
        3: "30cp 50c 50c 50c 50c 110c 125c 130c 60uc 80uc 230c 250c 250c 250c 280c 120uc 140uc 390c 0.09cp -",
        5: """
            31.9565ucp 61.9565c 72.8261c 83.6957c 94.5652c 68.6364c 90.9091c 135.4545c 60uc 70uc
            235.5c 222.5c 197.5c 172.5c 188c 334c 356.6667c 378.3333c 0.07cp -
        """,
    },
    "NumberOfTransitions": {
        1: "1cp 2c B 2c 1uc 2cp -",
        2: "1cp 2c 1uc 2c 1uc 3cp -",
        3: "1cp 2c 1c 2c 1c 3cp -",
        4: "1cp 2c 0uc 1c 0uc 3cp -",
        5: "1cp 2c 1uc 1c 2uc 2cp -",
    },
    "DurationInStateZero": {
        1: "0ucp 0c 0uc 0uc 0c 0cp -",
        2: "0ucp 0c 0uc 0c 0uc 0ucp -",
        3: "0cp 0c 0c 0c 0c 0cp -",
        4: "0ucp 3000c 0uc 12000c 13000uc 4000ucp -",
        5: "0ucp 0c 0uc 0c 0c 0cp -",
    },
    "DurationInStateNonZero": {
        1: "6000ucp 16000c 0uc 14000uc 0c 10001cp -",
        2: "14000ucp 16000c 10000uc 16000c 13000uc 7001ucp -",
        3: "14000cp 16000c 10000c 16000c 13000c 7001cp -",
        4: "14000ucp 13000c 10000uc 4000c 0uc 3001ucp -",
        5: "14000ucp 16000c 10000uc 16000c 13000c 7001cp -",
    },
}

# Where plantlog differs, and why.
_OVER_HALF_BAD = "5.4.3.2: 60 % of it is Bad, PercentDataBad is 50"
_RESOLUTION = "5.4.2.4: the last sample counts for one unit of time, 1 µs here and 1 ms there"
_ALWAYS_STEPPED = "a state does not slope into the next one: it holds until then, and is as Good as its sample"
DIFFERENT: dict[tuple[str, int], dict[int, tuple[str, str]]] = {
    ("TimeAverage2", 3): dict.fromkeys((8, 9, 15, 16), ("Bc", _OVER_HALF_BAD)),
    ("Total2", 3): dict.fromkeys((8, 9, 15, 16), ("Bc", _OVER_HALF_BAD)) | {18: ("0.00009cp", _RESOLUTION)},
    ("Total2", 1): {18: ("0.00009cp", _RESOLUTION)},
    ("Total2", 5): {18: ("0.00007cp", _RESOLUTION)},
    ("DurationInStateNonZero", 1): {2: ("8000uc", _ALWAYS_STEPPED), 4: ("6000c", _ALWAYS_STEPPED)},
}
