"""Stages of the loader: CPU work on samples that overlaps with training, most urgent first.

```text
plan ─► planning ─► samples, least slack first ─► read ─► decode ─► ... ─► collate ─► microbatch
        a thread    (schedule, room, run)         └───────── workers ──────────┘
```

`stage` declares a stage, `pipeline` joins stages into a `StagePipeline`. `run` is one pass over a
plan as a state machine without threads or a clock; `engine` drives it with threads, and `crew`,
`workers`, `process_worker` and `ray_worker` are what does the work. `recorder`, `statistics` and
`timeline` say where time went; `autoscale` says how many workers a stage should have.
"""

from loaders.stages.allotment import StageLimits
from loaders.stages.autoscale import Autoscaler
from loaders.stages.autoscaled import autoscaled
from loaders.stages.errors import StageError, WorkerDied
from loaders.stages.pipeline import StagePipeline
from loaders.stages.stage import Stage
from loaders.stages.statistics import Call, StageStatistics, StepWait, summary
from loaders.stages.timeline import plot_timeline, write_trace

__all__ = [
    "Autoscaler",
    "Call",
    "Stage",
    "StageError",
    "StageLimits",
    "StagePipeline",
    "StageStatistics",
    "StepWait",
    "WorkerDied",
    "autoscaled",
    "plot_timeline",
    "summary",
    "write_trace",
]
