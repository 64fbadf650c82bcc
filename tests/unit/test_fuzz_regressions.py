"""Every input that is kept, the seeds and what failed once, against the contract of its fuzzing target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from asyncua import ua
from hypothesis import given
from hypothesis import strategies as st

from ingest.opcua.history import answers
from ingest.opcua.message import publish_response, republish_response
from tests.fuzz.opcua import by_asyncua
from tests.fuzz.targets import NAMES, inputs, seeds_of, target

KEPT = [(name, file) for name in NAMES for file in inputs(name)]


@pytest.mark.parametrize(("name", "file"), KEPT, ids=[f"{name}-{file.name}" for name, file in KEPT])
@pytest.mark.timeout(30)
def test_corpus_inputs_still_pass(name: str, file: Path) -> None:
    target(name).check(file.read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_fuzz_seeds_equal_encoder_output(name: str) -> None:
    """Names only: what encoders write may change with their versions, which must not fail."""
    made = target(name).seeds()
    assert {file.name for file in seeds_of(name).iterdir()} == made.keys()
    assert all(len(content) <= target(name).max_len for content in made.values())


@pytest.mark.parametrize("name", NAMES)
@given(data=st.binary(max_size=400))
def test_any_bytes_pass_each_target(name: str, data: bytes) -> None:
    target(name).check(data)


def test_real_messages_are_accepted_by_both_decoders() -> None:
    """Else nothing would be compared."""
    kinds = (ua.PublishResponse, ua.RepublishResponse, ua.HistoryReadResponse, ua.PublishResponse)
    ours: tuple[Callable[[bytes], object], ...] = (
        publish_response,
        republish_response,
        lambda body: list(answers(body, [1, 2], 0)),
        publish_response,
    )
    for name, data in target("opcua").seeds().items():
        if not name.startswith(("node-opcua-cut", "node-opcua-not")):
            assert by_asyncua(kinds[data[0]], data[1:], 5.0) is not None, name
            ours[data[0]](data[1:])
