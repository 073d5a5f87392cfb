"""The README's Python blocks run as written, one after the other; its commands exist."""

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_python_blocks_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    runnable = [block for block in blocks("python") if "# before" not in block]
    assert runnable
    for block in runnable:
        exec(compile(block, str(README), "exec"), namespace)


def test_quoted_tables_are_those_of_the_results():
    """Every number of a quoted table stands in the results file named above it."""
    text = README.read_text()
    quoted = re.findall(r"<!-- from (benchmarks/results/\S+) -->\n(.*?)\n\n", text, flags=re.DOTALL)
    assert quoted
    for source, table in quoted:
        results = (README.parent / source).read_text()
        for number in re.findall(r"\d+\.\d+", table):
            assert number in results, f"{number} is not in {source}"


@pytest.mark.parametrize("command", ["balancer plan embedded", "python -m pytest"])
def test_the_two_commands_are_in_the_opening(command):
    opening = "".join(README.read_text().splitlines(keepends=True)[:60])
    assert command in opening
