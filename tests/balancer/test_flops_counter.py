"""The formulas against `FlopCounterMode` on the models of transformers: not one FLOP apart."""

import pytest

from tests.flop_cases import CASES
from tests.flop_oracles import DIRECTIONS, flop_row


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", CASES)
def test_every_product_of_the_model_is_counted(name: str, direction: str) -> None:
    row = flop_row(CASES[name](), direction)
    assert row.ours == row.counter
