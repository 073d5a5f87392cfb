"""However a program with stages ends, it ends at once and leaves nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
    until = time.monotonic() + 10
    while any(map(is_running, workers)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(is_running, workers))
    owners = {str(pid) for pid in (program.pid, *workers)}
    left = set(os.listdir("/dev/shm")) - before
    assert not [name for name in left if owners & set(name.split("_"))]
