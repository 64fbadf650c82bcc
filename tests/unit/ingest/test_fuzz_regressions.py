"""The seeds and every input that failed once, against the contract of their fuzzing target."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asyncua import ua
from hypothesis import given
from hypothesis import strategies as st

from ingest.opcua.decode.message import publish_response, republish_response
from ingest.opcua.recovery.history import answers
from tests.fuzz.opcua import by_asyncua
from tests.fuzz.targets import NAMES, inputs, target

_INPUTS = {f"{name}-{kept}": (name, data) for name in NAMES for kept, data in inputs(name).items()}


@pytest.mark.parametrize(("name", "data"), _INPUTS.values(), ids=_INPUTS)
@pytest.mark.timeout(30)
def test_kept_inputs_pass(name: str, data: bytes) -> None:
    assert len(data) <= target(name).max_len
    target(name).check(data)


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
