"""Published complaints about limits, each as a check; see README.md here."""

import numpy as np

from balancer.packing import pack


def test_case_b5_packed_samples_count_by_their_tokens_and_not_by_padded_width() -> None:
    assert pack([100] * 4, 1000).num_bins == 1


def test_case_b6_padded_microbatches_count_rows_times_longest() -> None:
    """Lengths of 7.3 to 11.4 seconds, in tenths of a second, within 300 seconds."""
    lengths = np.random.default_rng(0).integers(73, 115, 200)
    bins = list(pack(lengths, 3000, layout="padded"))
    assert max(len(ids) * lengths[ids].max() for ids in bins) <= 3000
    assert sorted(np.concatenate(bins).tolist()) == list(range(200))
