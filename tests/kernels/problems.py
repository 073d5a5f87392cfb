"""Small placement problems for kernels: ties, zeros, dear items, tight caps."""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from balancer.kernels.placement import place_on_ranks
from tests.naive import Cells


@dataclass(frozen=True)
class Small:
    """Rows are items; `order` is dearest first.

    `ranks`, where they differ, are slownesses and reserves by rank.
    """

    costs: list[list[int]]
    amounts: list[list[int]]
    caps: list[int]
    padded: bool
    dp_size: int
    num_slots: int
    ranks: tuple[list[list[int]], list[list[int]]] | None = None

    @property
    def order(self):
        return sorted(range(len(self.costs)), key=lambda i: (-sum(self.costs[i]), i))

    @property
    def modules(self):
        return len(self.costs[0])

    @staticmethod
    def peak(row, scales):
        return float(max(int(c * scale) for c, scale in zip(row, scales, strict=True)))

    def dearest_first(self, scales):
        """The same problem with its items in descending order of their peaks."""
        order = sorted(range(len(self.costs)), key=lambda i: -self.peak(self.costs[i], scales))
        return replace(
            self,
            costs=[self.costs[i] for i in order],
            amounts=[self.amounts[i] for i in order],
        )

    def arrays(self):
        """The arguments that kernels take, in their order: order, costs, modules, limits, size."""
        flat = np.array(self.costs, np.int64).ravel()
        amounts = np.array(self.amounts, np.int64).ravel()
        caps = np.array(self.caps, np.int64)
        order = np.array(self.order, np.int64)
        return order, flat, len(self.costs[0]), amounts, caps, self.padded

    def kernel_ranks(self, *, scalar=False):
        """`ranks` as kernels take them, with a slowness for each module or one for all."""
        if self.ranks is None:
            return None
        slow, reserve = (np.array(part, np.int64) for part in self.ranks)
        return np.ascontiguousarray(slow[:, :1] if scalar else slow).ravel(), reserve.ravel()

    def scalar_ranks(self):
        """`ranks` as oracles take them, with one slowness for all modules."""
        return self.ranks and ([row[:1] for row in self.ranks[0]], self.ranks[1])

    def cells(self):
        """Empty microbatches of the oracle."""
        num_cells = self.dp_size * self.num_slots
        return Cells(self.amounts, self.caps, self.padded, num_cells, self.ranks)

    def greedy(self, *, scalar):
        """Cells by the compiled greedy, comparing ranks by summed or by separate costs."""
        order, costs, modules, *limits = self.arrays()
        totals = costs.reshape(-1, modules).sum(axis=1)
        by_rank = (totals, 1) if scalar else (costs, modules)
        return place_on_ranks(
            order, costs, modules, *by_rank, *limits, self.dp_size, self.num_slots,
            self.kernel_ranks(scalar=scalar),
        )  # fmt: skip


@st.composite
def small_problems(
    draw, *, min_items=1, max_items=14, max_dp=3, max_slots=3, caps=True, alike=False
):
    """A problem in which every single item fits an empty microbatch of some rank.

    Of two problems one has ranks that differ, unless these are `alike`.
    """
    num_items = draw(st.integers(min_items, max_items))
    modules = draw(st.integers(1, 3))
    cost = st.one_of(st.integers(0, 4), st.integers(0, 1000), st.sampled_from([0, 10**9]))
    costs = draw(
        st.lists(
            st.lists(cost, min_size=modules, max_size=modules),
            min_size=num_items,
            max_size=num_items,
        )
    )
    num_caps = draw(st.integers(0, 2)) if caps else 0
    amounts = draw(
        st.lists(
            st.lists(st.integers(0, 10), min_size=num_caps, max_size=num_caps),
            min_size=num_items,
            max_size=num_items,
        )
    )
    limits = draw(st.lists(st.integers(10, 40), min_size=num_caps, max_size=num_caps))
    dp_size, ranks = draw(st.integers(1, max_dp)), None
    padded = bool(num_caps) and draw(st.booleans())
    if not alike and draw(st.booleans()):
        slow = st.lists(st.integers(1, 5), min_size=modules, max_size=modules)
        reserve = st.lists(st.integers(0, 8), min_size=num_caps, max_size=num_caps)
        rows = [st.lists(row, min_size=dp_size, max_size=dp_size) for row in (slow, reserve)]
        ranks = (draw(rows[0]), draw(rows[1]))
        ranks[1][-1] = [0] * num_caps
        for row in ranks[1]:
            row[:1] = [0] if padded else row[:1]
    return Small(
        costs=costs,
        amounts=amounts,
        caps=limits,
        padded=padded,
        dp_size=dp_size,
        ranks=ranks,
        num_slots=draw(st.integers(1, max_slots)),
    )
