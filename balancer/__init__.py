"""Places multimodal training samples so that every data-parallel rank finishes its step together.

```text
samples ─► SampleTable ─► token rules ─► cost model ─► planner ─► Plan ─► BalanceReport
           sizes known     tokens,        time or       rank and    who runs  what it
           undecoded       patches        FLOPs         microbatch  what      gains
```

Nothing here imports torch; `loaders` carries a plan into a torch training loop.
"""

from balancer.bounds import Certificate
from balancer.cost import CostModel, Costs, evaluate_costs
from balancer.errors import (
    ArgumentError,
    BalancerError,
    CapacityError,
    PlanError,
    SampleError,
    StateError,
)
from balancer.flops.cost import FlopsCost
from balancer.flops.presets import PRESETS, preset
from balancer.given_order import given_plan
from balancer.groups import GroupedCosts
from balancer.pipeline import step_times
from balancer.plan import Flag, Plan
from balancer.planner import EpochPlanner, plan_from_assignment, plan_step, plan_window
from balancer.report import BalanceReport, balance_report
from balancer.samples import SampleTable
from balancer.sizing.tables import (
    SizeColumns,
    embedded_table,
    load_table,
    save_table,
    table_from_arrow,
    table_from_parquet,
)
from balancer.split import SplitLayout, recommend_split
from balancer.table_costs import TableCosts
from balancer.tokens import TOKEN_RULES, ProcessorTokens, TokenRule, token_rule
from balancer.topology import Limits, Topology

__all__ = [
    "PRESETS",
    "TOKEN_RULES",
    "ArgumentError",
    "BalanceReport",
    "BalancerError",
    "CapacityError",
    "Certificate",
    "CostModel",
    "Costs",
    "EpochPlanner",
    "Flag",
    "FlopsCost",
    "GroupedCosts",
    "Limits",
    "Plan",
    "PlanError",
    "ProcessorTokens",
    "SampleError",
    "SampleTable",
    "SizeColumns",
    "SplitLayout",
    "StateError",
    "TableCosts",
    "TokenRule",
    "Topology",
    "balance_report",
    "embedded_table",
    "evaluate_costs",
    "given_plan",
    "load_table",
    "plan_from_assignment",
    "plan_step",
    "plan_window",
    "preset",
    "recommend_split",
    "save_table",
    "step_times",
    "table_from_arrow",
    "table_from_parquet",
    "token_rule",
]
