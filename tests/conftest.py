"""Fixtures that all tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("dev", deadline=None, print_blob=True, max_examples=50)
settings.register_profile("ci", deadline=None, print_blob=True, max_examples=200)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real traces and the demo samples; skips where it is absent."""
    path = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"needs the traces and demo samples in {path}")
    return path.resolve()
