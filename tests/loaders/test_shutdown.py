"""However a program ends, no process, thread or shared-memory file of the loader is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import multiprocessing, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored
from loaders import BalancedDataLoader, PackedCollator
from tests.loaders.fixed_plan import without_planning
from tests.loaders.planning import TextDataset, text_tokens

def show(text):
    print(text, flush=True)

def main(ending, method, persistent):
    loader = without_planning(BalancedDataLoader(
        TextDataset([4000] * 4000), cost_model=text_tokens, global_batch_size=4, dp_rank=0,
        dp_size=1, num_workers=2, collate_fn=PackedCollator(), multiprocessing_context=method,
        persistent_workers=persistent))
    threads = threading.active_count()
    stream = iter(loader)
    for batch in stream:
        show(" ".join(str(child.pid) for child in multiprocessing.active_children()))
        break
    if ending == "interpreter exit":
        return stream, loader
    if ending == "break":
        for batch in loader:
            break
        del stream, loader
        assert not multiprocessing.active_children()
        until = time.monotonic() + 60  # threads that feed a queue end a moment after it
        while threading.active_count() > threads and time.monotonic() < until:
            time.sleep(0.05)
        assert threading.active_count() == threads
    elif ending == "exception":
        for batch in loader:
            raise ZeroDivisionError
    elif ending == "sys.exit":
        for batch in stream:
            sys.exit(0)
    elif ending == "Ctrl-C":
        show("ready")
        for batch in loader:
            time.sleep(0.05)

if __name__ == "__main__":
    kept = main(sys.argv[1], sys.argv[2], sys.argv[3] == "persistent")
"""

ENDINGS = [
    ("interpreter exit", "fork", "plain", 0),
    ("interpreter exit", "fork", "persistent", 0),
    ("break", "spawn", "persistent", 0),
    ("exception", "fork", "plain", 1),
    ("sys.exit", "fork", "plain", 0),
    ("Ctrl-C", "fork", "plain", -signal.SIGINT),
    ("Ctrl-C", "forkserver", "persistent", -signal.SIGINT),
]


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="needs /proc")
@pytest.mark.parametrize(("ending", "method", "persistent", "code"), ENDINGS)
def test_nothing_is_left_when_a_program_ends(ending, method, persistent, code, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    root = str(Path(__file__).resolve().parents[2])
    program = subprocess.Popen(
        [sys.executable, str(file), ending, method, persistent], text=True, cwd=root,
        env=os.environ | {"PYTHONPATH": root}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        workers = [int(pid) for pid in program.stdout.readline().split()]
        if ending == "Ctrl-C":
            assert program.stdout.readline() == "ready\n", program.stderr.read()
            time.sleep(0.5)
            program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=120)
    finally:
        program.kill()
        program.wait(10)
    assert len(workers) == 2, errors
    assert program.returncode in (code, 1 if ending == "Ctrl-C" else code), errors
    until = time.monotonic() + 60
    while any(map(is_running, workers)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(is_running, workers))
    owners = {str(pid) for pid in (program.pid, *workers)}
    left = [name for name in os.listdir("/dev/shm") if owners & set(name.split("_"))]
    assert not left
    assert "leaked" not in errors
