"""However a program with stages ends, it ends at once and leaves nothing."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from loaders.stages import Stage, StageError, StagePipeline

PROGRAM = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored
from loaders.stages import Stage, StagePipeline

def work(value):
    time.sleep(0.01)
    return value + 1

def main(ending):
    stages = [Stage(name="read", work=work, workers=2, threads=0, kind=sys.argv[2]),
              Stage(name="collate", work=tuple, grain="microbatch")]
    pipeline = StagePipeline(stages, start_method="fork")
    stream = pipeline([[i, i + 1] for i in range(100000)])
    next(stream)
    print("ready", flush=True)
    if ending == "interpreter exit":
        return pipeline, stream
    if ending == "exception":
        raise ZeroDivisionError
    if ending == "sys.exit":
        sys.exit(0)
    if ending == "fork":
        child = os.fork()
        if child == 0:  # its threads are not here; it may only leave
            try:
                next(stream)
            except RuntimeError as error:
                assert "process" in str(error)
                os._exit(0)
            os._exit(1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if ending == "fork and exit":
        child = os.fork()
        if child == 0:  # it ends as any program does, and takes nothing of its parent's with it
            sys.exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert len(list(zip(range(50), stream))) == 50
        sys.exit(code)
    for _ in stream:
        time.sleep(0.01)

if __name__ == "__main__":
    kept = main(sys.argv[1])
"""

ENDINGS = [
    ("interpreter exit", {0}),
    ("exception", {1}),
    ("sys.exit", {0}),
    ("fork", {0}),
    ("fork and exit", {0}),
    ("SIGINT", {1, -signal.SIGINT}),
    ("SIGTERM", {-signal.SIGTERM}),
]


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="needs /proc")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["thread", "process"])
@pytest.mark.parametrize(("ending", "codes"), ENDINGS)
def test_a_program_with_stages_ends_whatever_ends_it(ending, codes, kind, tmp_path):
    """The exit code is the program's own, it takes seconds, and no process is left."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    root = str(Path(__file__).resolve().parents[3])
    before = set(os.listdir("/dev/shm"))
    program = subprocess.Popen(
        [sys.executable, str(file), ending, kind], text=True, cwd=root,
        env=os.environ | {"PYTHONPATH": root}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert program.stdout.readline() == "ready\n", program.stderr.read()
        workers = children(program.pid)
        if ending.startswith("SIG"):
            program.send_signal(getattr(signal, ending))
        _, errors = program.communicate(timeout=120)
    finally:
        program.kill()
        program.wait(10)
    assert program.returncode in codes, errors
    until = time.monotonic() + 60
    while any(map(is_running, workers)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(is_running, workers))
    owners = {str(pid) for pid in (program.pid, *workers)}
    left = set(os.listdir("/dev/shm")) - before
    assert not [name for name in left if owners & set(name.split("_"))]


class Shift:
    """Adds one, or raises where it is told to."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def __call__(self, value: int) -> int:
        if self.fails and value >= 7:
            raise KeyError(value)
        return value + 1


class Sum(Shift):
    """The sum of a microbatch, or an error."""

    def __call__(self, values: list[int]) -> int:
        return super().__call__(sum(values))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["thread", "process"])
@pytest.mark.parametrize("ending", ["read", "shift", "collate", "break", "exception", "end"])
def test_a_pass_that_ends_in_a_program_that_goes_on_leaves_nothing(ending, kind):
    """An error in any stage or in the loop, a break, the end: no thread and no process is left."""
    before = set(threading.enumerate())
    children = set(multiprocessing.active_children())
    names = ["read", "shift", "collate"]
    works = [Shift(ending == "read"), Shift(ending == "shift"), Sum(ending == "collate")]
    row = [
        Stage(name=name, work=work, kind=kind, workers=2, threads=0,
              grain="microbatch" if name == "collate" else "sample")
        for name, work in zip(names, works, strict=True)
    ]  # fmt: skip
    made, raised = [], ""
    try:
        with StagePipeline(row, start_method="fork") as pipeline:
            for _, value in pipeline([[i, i + 1] for i in range(0, 60, 2)]):
                made.append(value)
                if ending == "break":
                    break
                if ending == "exception":
                    raise ZeroDivisionError
    except (StageError, ZeroDivisionError) as error:
        raised = str(error)
    assert (ending in names) == (f"stage {ending!r} failed" in raised)
    assert len(made) == 30 if ending == "end" else len(made) < 10
    assert set(threading.enumerate()) <= before
    assert set(multiprocessing.active_children()) <= children
