"""SampleBatch refuses columns that would be stored wrong."""

import numpy as np
import pytest

from core.batch import SampleBatch


def test_unequal_columns_are_named() -> None:
    with pytest.raises(ValueError, match="channel_id 2, time 1"):
        SampleBatch(1, 0, np.zeros(2, np.int32), np.zeros(1, np.int64), np.zeros(2), np.zeros(2, np.uint32))


def test_wrong_dtype_is_named() -> None:
    with pytest.raises(ValueError, match="column status is int64, not uint32"):
        SampleBatch(1, 0, np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.int64))
