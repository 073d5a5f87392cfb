"""Balanced microbatches for torch training loops.

```text
sizes ─► plan ─► BalancedBatchSampler ─► MicrobatchDataset ─► PackedCollator ─► microbatch
balancer         ids with facts          samples with facts   tensors, loss scale
                                         └────── worker processes ──────┘
```

Every rank plans the same steps from the same sizes and takes its own part (`sampler`). The ids of a
microbatch travel with what the plan knows of it, its facts (`microbatch`), through the dataset and
the worker processes to the collator (`collate`), which adds what the loss is divided by.
`BalancedDataLoader` (`loader`) puts these together in the shape of torch's DataLoader; each part
also works alone, with a stock DataLoader.

With `workers="thread"` or `"process"` the stages of `loaders.stages` take the place of the worker
processes: single samples, most urgent first. `on_device` (`prefetch`) copies what comes out ahead.

Where samples can only be read one after another, `StreamLoader` (`streams`) plans over a window of
them, and `rebalance` lets them change ranks besides; a `ShardedStream` is resumed by any number of
ranks.
"""

from loaders.collate import PackedCollator, PaddedCollator
from loaders.loader import BalancedDataLoader
from loaders.loss import sample_losses, step_loss, token_losses
from loaders.microbatch import Microbatch, MicrobatchFacts, SampleFailure, SampleList
from loaders.parquet import ParquetDataset
from loaders.prefetch import on_device
from loaders.rank import discover_rank
from loaders.reading import MicrobatchDataset
from loaders.sample_errors import SampleReadError
from loaders.sampler import BalancedBatchSampler
from loaders.sources import FolderDataset, TarDataset, decode_image
from loaders.step import Step
from loaders.step_log import StepLog, TensorBoardLog
from loaders.streams import ShardedStream, StreamLoader, rebalance
from loaders.uniform import padding_fraction

__all__ = [
    "BalancedBatchSampler",
    "BalancedDataLoader",
    "FolderDataset",
    "Microbatch",
    "MicrobatchDataset",
    "MicrobatchFacts",
    "PackedCollator",
    "PaddedCollator",
    "ParquetDataset",
    "SampleFailure",
    "SampleList",
    "SampleReadError",
    "ShardedStream",
    "Step",
    "StepLog",
    "StreamLoader",
    "TarDataset",
    "TensorBoardLog",
    "decode_image",
    "discover_rank",
    "on_device",
    "padding_fraction",
    "rebalance",
    "sample_losses",
    "step_loss",
    "token_losses",
]
