"""Microbatches on their device."""

from typing import NamedTuple

import pytest
import torch

from loaders.prefetch import on_device


class Pair(NamedTuple):
    left: torch.Tensor
    right: int


def batches():
    return [{"x": torch.full((3,), float(i)), "rest": [Pair(torch.ones(1), i), ("a", None)]}
            for i in range(4)]  # fmt: skip


def test_on_the_cpu_nothing_changes_and_types_are_kept():
    """Order, values and containers are those of the loader."""
    for number, batch in enumerate(on_device(batches(), "cpu")):
        assert batch["x"].tolist() == [number] * 3
        assert isinstance(batch["rest"][0], Pair)
        assert batch["rest"][0].right == number
        assert batch["rest"][1] == ("a", None)
    assert number == 3


def test_no_microbatches_are_none():
    assert list(on_device([], "cpu")) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_values_are_right_in_the_current_stream():
    """Every tensor arrives, in order, before the current stream uses it."""
    large = [{"x": torch.full((1 << 20,), float(i))} for i in range(8)]
    sums = [float(batch["x"].sum()) for batch in on_device(large, "cuda")]
    assert sums == [float(i << 20) for i in range(8)]
