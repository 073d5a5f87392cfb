"""Stages on a local Ray: the microbatches that threads hand out, also when an actor is killed."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from loaders.stages import Stage, StageError, StagePipeline

ray = pytest.importorskip("ray", reason="needs the extra evenstep[ray]")

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


class Read:
    """Reads a sample; kills its process once at one of them, always at another."""

    def __init__(self, died: Path) -> None:
        self.died = str(died)

    def __call__(self, sample_id: int) -> np.ndarray:
        if sample_id == 5 and not os.path.exists(self.died):
            open(self.died, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if sample_id == 999:
            raise KeyError("no such sample")
        return np.full(3, sample_id)


def test_microbatches_are_those_of_threads_though_an_actor_is_killed(cluster, tmp_path):
    """Plan order, contents and counts are the same; the killed worker's sample is redone."""
    microbatches = [[i, i + 1] for i in range(0, 20, 2)]
    died = tmp_path / "died"
    read = [Stage(name="read", work=Read(died), kind="ray", workers=2, threads=1)]
    with StagePipeline(read, look_ahead=4) as pipeline:
        made = [rows for _, rows in pipeline(microbatches)]
        assert [[int(row[0]) for row in rows] for rows in made] == microbatches
        assert all(row.flags.writeable for rows in made for row in rows)
        assert died.exists()
        statistics = pipeline.stats()[1]
        assert (statistics.count, statistics.restarts) == (20, 1)
        with pytest.raises(StageError, match="'read' failed on sample 999: KeyError"):
            list(pipeline([[1, 999]]))
