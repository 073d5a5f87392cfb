"""Worker processes: they end with the training process, and what they return is what it would."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from loaders.stages import Stage
from loaders.stages.process_worker import ProcessWorker

pytestmark = pytest.mark.timeout(120)

PROGRAM = """
import os, signal, sys, threading, time
from loaders.stages import Stage
from loaders.stages.process_worker import ProcessWorker

def work(seconds):
    time.sleep(seconds)
    return os.getpid()

if __name__ == "__main__":
    stage = Stage(name="read", work=work, kind="process")
    workers = [ProcessWorker(stage, start_method=sys.argv[1]) for _ in range(2)]
    pids = [worker.call(0) for worker in workers]
    for worker in workers:
        threading.Thread(target=worker.call, args=(60,), daemon=True).start()
    time.sleep(0.3)
    print(*pids, flush=True)
    if sys.argv[2] == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    threading.excepthook = lambda arguments: None
    for worker in workers:
        worker.stop()
"""


def runs(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("method", "ending"),
    [("fork", "SIGKILL"), ("fork", "stop"), ("spawn", "SIGKILL"), ("forkserver", "stop")],
)
def test_processes_end_with_their_parent_in_the_middle_of_a_call(tmp_path, method, ending):
    """However the parent ends, its workers do within seconds, and no semaphore is left (K8)."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    output, errors = tmp_path / "output", tmp_path / "errors"
    with output.open("w") as out, errors.open("w") as err:
        ended = subprocess.run(
            [sys.executable, program, method, ending], stdout=out, stderr=err, timeout=90,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())}, check=False,
        )  # fmt: skip
    assert ended.returncode == (-signal.SIGKILL if ending == "SIGKILL" else 0), errors.read_text()
    pids = output.read_text().split()
    assert len(pids) == 2
    deadline = time.monotonic() + 60
    while any(map(runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(runs, pids))
    assert "leaked" not in errors.read_text()


class Raise:
    def __init__(self, error):
        self.error = error

    def __call__(self, argument):
        raise self.error


@pytest.mark.parametrize("error", [EOFError("cut short"), ConnectionResetError("by peer")])
def test_errors_of_files_and_networks_are_those_of_the_call(error):
    """A truncated file or a lost server is not taken for the loss of the worker."""
    stage = Stage(name="read", work=Raise(error), kind="process")
    worker = ProcessWorker(stage, start_method="fork")
    try:
        with pytest.raises(type(error), match=str(error)):
            worker.call(0)
        assert worker.restarts == 0
    finally:
        worker.stop()


def echo(value):
    return value


def test_empty_and_large_values_come_back_whole():
    """Arrays without elements, bytes of 20 MB, read-only and writable arrays."""
    worker = ProcessWorker(Stage(name="read", work=echo, kind="process"), start_method="fork")
    try:
        for array in (np.empty((0, 3)), np.empty(0, np.int8), np.array(7), np.arange(5_000_000)):
            back = worker.call(array)
            assert back.dtype == array.dtype
            assert back.shape == array.shape
            assert np.array_equal(back, array)
        large = os.urandom(1 << 20) * 20
        assert worker.call(large) == large
    finally:
        worker.stop()


def decode(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def test_images_are_decoded_as_in_this_process(shared_data):
    """Every pixel of a demo image is the same, whichever process decoded it."""
    images = sorted(p for p in (shared_data / "demo").rglob("*") if p.suffix in (".jpg", ".png"))
    if not images:
        pytest.skip(f"needs an image in {shared_data / 'demo'}")
    worker = ProcessWorker(Stage(name="decode", work=decode, kind="process"), start_method="fork")
    try:
        for path in images[:2]:
            assert np.array_equal(worker.call(str(path)), decode(path))
    finally:
        worker.stop()
