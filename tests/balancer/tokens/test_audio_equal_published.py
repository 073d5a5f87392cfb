"""Audio counts against the published feature extractors and processors."""

import numpy as np
import pytest

from tests.audio_oracles import AUDIO_ORACLES
from tests.token_oracles import audio_durations, check_audio, mismatches

SECONDS = audio_durations(2000, seed=5)
REAL_SECONDS = [0.015, 0.0201, 0.05, 0.4, 1.0, 3.1415, 29.99, 30.0, 31.0]


@pytest.mark.parametrize("case", sorted(AUDIO_ORACLES))
def test_audio_counts_equal_the_published_processor(case: str) -> None:
    row, lines = check_audio(AUDIO_ORACLES[case](), SECONDS)
    assert row.cases >= 2000
    assert row.mismatches == 0, "\n".join(lines[:10])


@pytest.mark.parametrize("case", sorted(AUDIO_ORACLES))
def test_audio_counts_equal_the_features_of_real_sound(case: str) -> None:
    oracle = AUDIO_ORACLES[case]()
    expected = [oracle.run(seconds) for seconds in REAL_SECONDS]
    lines = mismatches(oracle.rule.audio(np.array(REAL_SECONDS)), expected, REAL_SECONDS)
    assert not lines, "\n".join(lines)
