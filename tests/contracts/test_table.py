"""The table of cases lists every case once, and every test that it names exists."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
TABLE = (Path(__file__).parent / "README.md").read_text()
LETTERS = "ABCDEFGHIJKLM"
CASES_OF_EACH_LETTER = (10, 11, 8, 9, 11, 8, 7, 11, 9, 6, 13, 6, 6)


def test_every_case_has_one_row_in_order() -> None:
    """The rows are A1 ... M6, each once."""
    counts = zip(LETTERS, CASES_OF_EACH_LETTER, strict=True)
    expected = [f"{letter}{k + 1}" for letter, n in counts for k in range(n)]
    assert len(expected) == 115
    assert re.findall(r"^\| ([A-M]\d+) \|", TABLE, re.MULTILINE) == expected


def test_every_named_test_exists() -> None:
    """Every file that the table names is there, with the function where one is named."""
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", TABLE)
    assert named
    for file, function in named:
        tree = ast.parse((TESTS / file).read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not function or function in functions, f"{file} has no {function}"


def test_a_row_without_a_test_says_why() -> None:
    """A case without a test is marked as not yet tested, or as one that does not apply."""
    for row in re.findall(r"^\| [A-M]\d+ \|.*$", TABLE, re.MULTILINE):
        assert "::" in row or ".py`" in row or re.search(r"\| (not yet|does not apply): ", row), row
