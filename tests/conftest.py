"""Fixtures that all tests share."""

import gc
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("dev", deadline=None, print_blob=True, max_examples=50)
# The same examples in every run of CI: a change is judged by them, not by luck. Search with dev.
settings.register_profile("ci", deadline=None, print_blob=True, max_examples=60, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real traces and the demo samples; skips where it is absent."""
    path = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"needs the traces and demo samples in {path}")
    return path.resolve()


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Every process that a test starts has ended soon after the test has."""
    before = {child.pid for child in multiprocessing.active_children()}
    yield
    until = time.monotonic() + 20
    # Asked again and again, not joined: a thread of their pool may be joining them, too.
    while left := [c for c in multiprocessing.active_children() if c.pid not in before]:
        assert time.monotonic() < until, left
        gc.collect()  # a torch loader with persistent workers is part of a cycle
        time.sleep(0.02)
