"""The cover kernels agree with plain Python, and mend without breaking anything."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from balancer.covers import Cover
from balancer.kernels.cover import cover_cells, cover_state
from balancer.kernels.cover_exact import covering_cells
from tests import naive_cover

PLENTY = 10**6


def bits(sets):
    return np.array([sum(1 << k for k in each) for each in sets], np.int64)


@st.composite
def covers(draw, max_items=14, max_cells=5):
    """Items in cells within their limits, with kinds, and what cells need and are barred from."""
    num_items = draw(st.integers(1, max_items))
    num_cells = draw(st.integers(1, min(num_items, max_cells)))
    num_kinds = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = [set(np.flatnonzero(rng.random(num_kinds) < 0.4).tolist()) for _ in range(num_items)]
    needed = [set(np.flatnonzero(rng.random(num_kinds) < 0.6).tolist()) for _ in range(num_cells)]
    barred = [set(range(num_kinds)) - need if rng.random() < 0.3 else set() for need in needed]
    cells = np.concatenate([np.arange(num_cells), rng.integers(0, num_cells, num_items)])
    cells = cells[:num_items].astype(np.int64)
    num_caps = draw(st.integers(0, 2))
    amounts = rng.integers(0, 6, (num_items, num_caps))
    padded = bool(num_caps) and draw(st.booleans())
    held = naive_cover.Placement(cells, amounts, [PLENTY] * num_caps, padded, kinds, needed, barred)
    caps = []
    for a in range(num_caps):
        columns = [[int(amounts[i][a]) for i in held.items(cell)] for cell in range(num_cells)]
        most = max(len(c) * max(c) if padded and a == 0 else sum(c) for c in columns)
        caps.append(max(1, most + draw(st.integers(0, 4))))
    totals = rng.integers(1, 30, num_items)
    return cells, amounts, caps, padded, kinds, needed, barred, totals, num_kinds


@given(covers())
def test_mending_is_that_of_plain_python(case):
    """Exchange by exchange the same, to the last cell."""
    cells, amounts, caps, padded, kinds, needed, barred, totals, num_kinds = case
    placement = naive_cover.Placement(cells, amounts, caps, padded, kinds, needed, barred)
    expected = naive_cover.cover_cells(placement, totals, num_kinds)
    mended = cells.copy()
    cover_cells(
        mended, bits(kinds), num_kinds, bits(needed), bits(barred), totals, amounts.ravel(),
        np.array(caps, np.int64), padded, len(needed),
    )  # fmt: skip
    assert mended.tolist() == expected


@given(covers())
def test_mending_makes_no_fault_and_breaks_no_limit(case):
    """Faults never grow; limits hold; no microbatch becomes empty."""
    cells, amounts, caps, padded, kinds, needed, barred, totals, num_kinds = case
    cover = Cover(
        kinds=bits(kinds), num_kinds=num_kinds, needed=bits(needed), barred=bits(barred)
    )  # fmt: skip
    mended = cells.copy()
    cover_cells(
        mended, cover.kinds, num_kinds, cover.needed, cover.barred, totals, amounts.ravel(),
        np.array(caps, np.int64), padded, len(needed),
    )  # fmt: skip
    placement = naive_cover.Placement(mended, amounts, caps, padded, kinds, needed, barred)
    assert all(placement.fits(cell) for cell in range(len(needed)))
    faults = sum(
        len(placement.lacks(cell)) + len({k for _, k in placement.intruders(cell)})
        for cell in range(len(needed))
    )
    assert cover.faults(mended) == faults <= cover.faults(cells)


@given(covers(max_items=7, max_cells=4), st.integers(0, 7), st.sampled_from([1, 2]))
@settings(max_examples=40)
def test_an_assignment_without_fault_is_found_if_there_is_one(case, in_all, dp_size):
    """The exact search finds one exactly where trying all assignments does, and a legal one."""
    _, amounts, caps, padded, kinds, _, _, totals, num_kinds = case
    assume(len(kinds) >= dp_size)
    num_slots = 2 if len(kinds) >= 2 * dp_size else 1
    in_all &= (1 << num_kinds) - 1
    everywhere = {k for k in range(num_kinds) if in_all >> k & 1}
    found = covering_cells(
        np.argsort(-totals, kind="stable"), bits(kinds), num_kinds, in_all, 0, amounts.ravel(),
        np.array(caps, np.int64), padded, dp_size, num_slots, 10**6,
    )  # fmt: skip
    exists = naive_cover.can_be_covered(
        amounts, caps, padded, kinds, everywhere, 0, dp_size, num_slots
    )
    assert (found.min() >= 0) == exists
    if exists:
        empty = [set()] * (dp_size * num_slots)
        placement = naive_cover.Placement(found, amounts, caps, padded, kinds, empty, empty)
        for slot in range(num_slots):
            has = [placement.has(slot * dp_size + rank) for rank in range(dp_size)]
            assert all(each == has[0] and everywhere <= each for each in has)
        assert all(placement.fits(cell) for cell in range(dp_size * num_slots))


@given(covers())
def test_the_state_counts_kinds(case):
    """`uses` counts the items of each kind, `sole` marks needed kinds that one item brings."""
    cells, _, _, _, kinds, needed, _, _, num_kinds = case
    uses, sole = cover_state(cells, bits(kinds), num_kinds, bits(needed))
    for cell, need in enumerate(needed):
        counts = [
            sum(k in kinds[item] for item in np.flatnonzero(cells == cell))
            for k in range(num_kinds)
        ]
        assert uses[cell * num_kinds : (cell + 1) * num_kinds].tolist() == counts
        assert sole[cell] == sum(1 << k for k in need if counts[k] == 1)
