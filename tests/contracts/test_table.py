"""The tables list every case and invariant once, and every test that they name exists."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
TABLES = (Path(__file__).parent / "README.md").read_text()
TABLE, INVARIANTS = TABLES.split("\n# Invariants", 1)
LETTERS = "ABCDEFGHIJKLM"
CASES_OF_EACH_LETTER = (10, 11, 8, 9, 11, 8, 7, 11, 9, 6, 13, 6, 6)


def test_every_case_has_one_row_in_order() -> None:
    """The rows are A1 ... M6, each once."""
    counts = zip(LETTERS, CASES_OF_EACH_LETTER, strict=True)
    expected = [f"{letter}{k + 1}" for letter, n in counts for k in range(n)]
    assert len(expected) == 115
    assert re.findall(r"^\| ([A-M]\d+) \|", TABLE, re.MULTILINE) == expected


def test_every_invariant_has_one_row_in_order_with_a_test() -> None:
    """The rows are I1 ... I21, each once, and none is without a test."""
    rows = re.findall(r"^\| (I\d+) \|(.*)$", INVARIANTS, re.MULTILINE)
    assert [name for name, _ in rows] == [f"I{k}" for k in range(1, 22)]
    assert all(".py" in row for _, row in rows)


def test_every_named_test_exists() -> None:
    """Every file that the tables name is there, with the function where one is named."""
    named = set(re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", TABLES))
    assert named
    for file in {file for file, _ in named}:
        functions = set(re.findall(r"^def (\w+)", (TESTS / file).read_text(), re.MULTILINE))
        missing = {function for each, function in named if each == file} - functions - {""}
        assert not missing, f"{file} has no {', '.join(sorted(missing))}"


def test_a_row_without_a_test_says_why() -> None:
    """A case without a test is marked as not yet tested, or as one that does not apply."""
    for row in re.findall(r"^\| [A-M]\d+ \|.*$", TABLE, re.MULTILINE):
        assert "::" in row or ".py`" in row or re.search(r"\| (not yet|does not apply): ", row), row
