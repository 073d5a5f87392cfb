"""Cost choices: what a sample is priced by."""

from dataclasses import dataclass, replace

import numpy as np

from balancer.cost import CostFunction, Costs, evaluate_costs
from balancer.flops.cost import FlopsCost
from balancer.samples import SampleTable

__all__ = ["TokenCost", "flops"]


def flops(model: FlopsCost) -> FlopsCost:
    """Training FLOPs of each module, as the model prices them."""
    return model


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCost:
    """Tokens of the language model as the only cost: what a token budget assumes."""

    model: CostFunction

    def __call__(self, table: SampleTable) -> Costs:
        """Costs of every sample, unit `"tokens"`."""
        costs = evaluate_costs(self.model, table)
        return replace(
            costs,
            modules=("language",),
            values=np.ascontiguousarray(costs.tokens[:, None], np.float64),
            unit="tokens",
        )
