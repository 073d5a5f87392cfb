"""Fixtures that all tests share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real traces and the demo samples; skips where it is absent."""
    path = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"needs the traces and demo samples in {path}")
    return path.resolve()
