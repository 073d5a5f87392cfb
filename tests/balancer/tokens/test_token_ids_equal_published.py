"""Image tokens against the token ids that whole processors put into a text."""

import numpy as np
import pytest
from PIL import Image

from tests.token_id_oracles import TOKEN_ID_ORACLES
from tests.token_oracles import has_torchvision

REAL_SIZES = [(60, 60), (70, 41), (100, 300), (333, 500), (700, 390), (450, 1300), (1100, 900)]


# Some processors of transformers hand tensors to numpy in its old way.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.skipif(not has_torchvision(), reason="these processors need torchvision")
@pytest.mark.parametrize("family", sorted(TOKEN_ID_ORACLES))
def test_image_tokens_equal_those_of_a_real_text(family: str) -> None:
    oracle = TOKEN_ID_ORACLES[family]()
    heights, widths = np.array(REAL_SIZES).T
    expected = [oracle.tokens(Image.new("RGB", (width, height))) for height, width in REAL_SIZES]
    assert oracle.rule.images(heights, widths).tokens.tolist() == expected
