"""Planners in use elsewhere, as functions: which microbatch each sample of a step goes to.

Each takes the costs of one step's samples, in their given order, and the topology, and returns the
cell `slot * dp_size + rank` of each sample, int64 `(num_samples,)`. Every baseline places the same
samples, leaves no microbatch empty while there are enough of them, and is deterministic. All are
written from the description of their source, except the one that transformers itself provides.

What they see: nothing (`arrival`), tokens (`length_grouped`, `token_greedy`, `best_fit`,
`batch_rebalance`, `verl_balance`, `multipack_slots`, `trl_packs`), tokens and patches
(`omnibal_groups`), the cost over all modules, some with tokens (`disttrain_order`, `wlb_queues`,
`hydraulis_dispatch`, `dynapipe_runs`), the cost of each module (`entrain_strata`). `best_fit` and
`wlb_queues` know the limit on tokens, the others no limits.
"""

from benchmarks.baselines.arrival_order import arrival
from benchmarks.baselines.disttrain import disttrain_order
from benchmarks.baselines.dynapipe import dynapipe_runs
from benchmarks.baselines.entrain import entrain_strata
from benchmarks.baselines.greedy import token_greedy
from benchmarks.baselines.hydraulis import hydraulis_dispatch
from benchmarks.baselines.length_groups import length_grouped
from benchmarks.baselines.multipack import multipack_slots
from benchmarks.baselines.omnibal import omnibal_groups
from benchmarks.baselines.packing import best_fit
from benchmarks.baselines.transformers_rebalance import batch_rebalance
from benchmarks.baselines.trl import trl_packs
from benchmarks.baselines.verl import verl_balance
from benchmarks.baselines.wlb import wlb_queues

__all__ = [
    "arrival",
    "batch_rebalance",
    "best_fit",
    "disttrain_order",
    "dynapipe_runs",
    "entrain_strata",
    "hydraulis_dispatch",
    "length_grouped",
    "multipack_slots",
    "omnibal_groups",
    "token_greedy",
    "trl_packs",
    "verl_balance",
    "wlb_queues",
]
