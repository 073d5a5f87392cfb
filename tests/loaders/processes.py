"""Runs a function in several torch.distributed processes under a time limit."""

import time
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing
from torch import distributed

TIME_LIMIT_S = 240


def _rank(rank: int, function: Any, dp_size: int, folder: Path, arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=dp_size)
    function(rank, folder, *arguments)
    distributed.destroy_process_group()


def run_ranks(function: Any, dp_size: int, folder: Path, *arguments: Any) -> None:
    """Run `function(rank, folder, *arguments)` in as many processes; kill them in the end."""
    context = torch.multiprocessing.spawn(
        _rank, (function, dp_size, folder, arguments), nprocs=dp_size, join=False
    )
    deadline = time.monotonic() + TIME_LIMIT_S
    try:
        while not context.join(timeout=1):
            assert time.monotonic() < deadline, "the ranks did not finish: they wait for each other"
    finally:
        for process in context.processes:
            process.kill()
