"""The programs of loaders/RECIPES.md that run in one process, as they are written there."""

from typing import Any

import pytest

from tests.loaders.test_recipes import program


def run(title: str) -> dict[str, Any]:
    """Run a recipe in this process; the names that it leaves behind."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program(title), title, "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_torchdata_goes_on_in_the_middle_of_a_step():
    """Each sample once: 3 microbatches before the state, 9 after it, also read by 2 workers."""
    names = run("torchdata")
    assert len(names["before"]) == 3
    assert len(names["after"]) == 9
    ids = [sample for batch in names["before"] + names["after"] for sample in batch]
    assert sorted(ids) == list(range(48))
    assert names["after"][0] == names["following"]
