"""The simulator beside a pipeline of two real processes that send and receive."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from balancer.kernels.pipeline import end_times
from balancer.pipeline_schedule import pipeline_schedule
from balancer.topology import Topology

_STAGE = """
import json, sys
from datetime import timedelta
import torch
import torch.distributed as dist

rank, port, eager, works = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "eager_1f1b", sys.argv[4]
forward, backward = json.loads(works)
dist.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2,
    timeout=timedelta(seconds=60),
)
num_microbatches, clock, log, sent = len(forward), 0, [], []


def received(kind, j):
    # The stage that ran before sends when it ended; nothing can start sooner.
    message = torch.zeros(1, dtype=torch.int64)
    dist.recv(message, src=1 - rank, tag=2 * j + (kind == "B"))
    return int(message[0])


def run(kind, j):
    global clock
    if (kind, rank) in (("F", 1), ("B", 0)):
        clock = max(clock, received(kind, j))
    clock += (forward if kind == "F" else backward)[j][rank]
    log.append([clock, rank, kind, j])
    if (kind, rank) in (("F", 0), ("B", 1)):
        message = torch.tensor([clock])
        sent.append((dist.isend(message, dst=1 - rank, tag=2 * j + (kind == "B")), message))


# One forward one backward, as a training loop writes it: warm-up, steady state, cool-down.
warm_up = min(num_microbatches, (2 if eager else 1) * (1 - rank))
for j in range(warm_up):
    run("F", j)
for j in range(num_microbatches - warm_up):
    run("F", warm_up + j)
    run("B", j)
for j in range(num_microbatches - warm_up, num_microbatches):
    run("B", j)
for work, _ in sent:
    work.wait()
dist.barrier()
print(json.dumps(log))
dist.destroy_process_group()
"""


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def events_of_processes(schedule, forward, backward):
    """Events (end, pipeline rank, kind, microbatch) that two processes logged."""
    arguments = [str(free_port()), schedule, json.dumps([forward.tolist(), backward.tolist()])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _STAGE, str(rank), *arguments], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    events = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=110)
            assert process.returncode == 0, errors
            events += [tuple(event) for event in json.loads(output.splitlines()[-1])]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return sorted(events)


def simulated_events(schedule, forward, backward):
    """The same by the simulator."""
    topology = Topology(dp_size=1, barrier="pipeline", pp_size=2, schedule=schedule)
    table = pipeline_schedule(topology, len(forward))
    end, clock = np.empty(len(table.lane), np.int64), np.empty(2, np.int64)
    loads = np.concatenate([forward, backward], axis=1).ravel()
    end_times(loads, 0, table.lane, table.after, table.duration, clock, end)
    events = []
    for ended, p, column in zip(end, table.lane, table.duration, strict=True):
        j, within = divmod(int(column), 4)
        events.append((int(ended), int(p), "FB"[within // 2], j))
    return sorted(events)


@pytest.mark.dist
@pytest.mark.timeout(120)
@pytest.mark.parametrize("schedule", ["1f1b", "eager_1f1b"])
def test_events_come_in_the_order_of_two_real_processes(schedule):
    """Two gloo processes that wait for each other's messages end every event when simulated."""
    rng = np.random.default_rng(7)
    forward, backward = rng.integers(1, 50, (2, 6, 2))
    expected = simulated_events(schedule, forward, backward)
    assert events_of_processes(schedule, forward, backward) == expected
