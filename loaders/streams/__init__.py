"""Streams: balanced microbatches of samples that can only be read one after another.

```text
dataset ─► source ─► reader ─► gather ─► plan | moving_plan ─► engine ─► loader | rebalance
           samples   held      rows of   steps of a window     samples   microbatches
           in order  and       all ranks                       of this
                     priced                                    rank
                     (rows)
```

Each rank reads its own samples and prices them; those that fail are left out or raised (`failing`).
The ranks gather the prices of a window of samples, plan its steps alike (`rules` says by what), and
where samples may move hand them to one another (`exchange`, `parcels`). `stats` counts what became
of them. A state says where a rank's window begins and how far it got (`state`, `resumable`). A
stream in `shards` has a source of its own (`sharded_source`, its places in `shard_place`), from
which other ranks can go on (`resharding`).
"""

from loaders.streams.loader import StreamLoader
from loaders.streams.rebalance import RebalancedLoader, rebalance
from loaders.streams.shards import ShardedStream
from loaders.streams.stats import StreamStats

__all__ = ["RebalancedLoader", "ShardedStream", "StreamLoader", "StreamStats", "rebalance"]
