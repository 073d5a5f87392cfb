"""The programs of loaders/RECIPES.md run as they are written there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import loaders


def program(title: str) -> str:
    """The first Python block under a heading that begins with `title`."""
    text = (Path(loaders.__file__).parent / "RECIPES.md").read_text()
    section = text.split(f"## {title}", maxsplit=1)[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.mark.dist
def test_case_j6_plain_torch_ddp(tmp_path: Path) -> None:
    """Two ranks end the DDP recipe after the same number of microbatches: 3 steps of 2."""
    path = tmp_path / "ddp.py"
    path.write_text(program("Plain torch: DDP"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", str(path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = sorted(re.findall(r"rank \d: \d+ microbatches", done.stdout))
    assert found == ["rank 0: 6 microbatches", "rank 1: 6 microbatches"]
