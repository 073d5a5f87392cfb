"""Counting in blocks changes nothing."""

from dataclasses import fields

import numpy as np
import pytest

from balancer.tokens import TOKEN_RULES, MediaCounts, blocks, token_rule


@pytest.mark.parametrize("family", TOKEN_RULES)
def test_blocks_give_the_counts_of_one_call(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks all alike, some alike, and with images that are refused in one block only."""
    rng = np.random.default_rng(0)
    heights = np.concatenate([np.full(30, 448), rng.integers(1, 3000, 41), [1, 1, 1]])
    widths = np.concatenate([np.full(30, 448), rng.integers(1, 3000, 41), [999, 1, 999]])
    rule = token_rule(family)
    whole = rule.images(heights, widths)
    monkeypatch.setattr(blocks, "BLOCK", 7)
    parts = rule.images(heights, widths)
    for field in fields(MediaCounts):
        ours, expected = getattr(parts, field.name), getattr(whole, field.name)
        assert ours.dtype == expected.dtype
        assert np.array_equal(ours, expected), field.name
