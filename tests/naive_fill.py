"""Plain-Python oracles of `balancer.kernels.fill`."""


def _room(items, amounts, caps, padded):
    for a, cap in enumerate(caps):
        values = [int(amounts[item][a]) for item in items]
        if (len(values) * max(values) if padded and a == 0 else sum(values)) > cap:
            return False
    return True


def _cell(item, held, num_cells, amounts, caps, padded):
    """First of the last 32 cells with room, or a new one, or -1."""
    for cell in range(max(0, len(held) - 32), len(held)):
        if _room([*held[cell], item], amounts, caps, padded):
            return cell
    return len(held) if len(held) < num_cells else -1


def fill_cells(order, amounts, caps, padded, num_cells):
    """Cell of each item, -1 where it fits nowhere."""
    held, cells = [], [-1] * len(amounts)
    for item in order:
        cell = _cell(item, held, num_cells, amounts, caps, padded)
        cells[item] = cell
        if cell == len(held):
            held.append([item])
        elif cell >= 0:
            held[cell].append(item)
    return cells


def step_bounds(order, costs, topology, alone):
    """Positions at which steps begin, the last being that of the incomplete one."""
    limits, num_cells = topology.limits, topology.dp_size * topology.num_microbatches
    names = [name for name in limits.given if name != "samples"]
    most = limits.max_samples or 10**9
    caps = [limits.room[name] for name in names] + [most]
    padded = limits.layout == "padded" and limits.max_tokens is not None
    amounts = {
        i: [min(int(getattr(costs, name)[i]), limits.room[name]) for name in names]
        + [most if i in alone else 1]
        for i in order
    }
    bounds, held = [0], []
    for position, i in enumerate(order):
        cell = _cell(i, held, num_cells, amounts, caps, padded)
        if cell < 0:
            bounds.append(position)
            held, cell = [], 0
        if cell == len(held):
            held.append([])
        held[cell].append(i)
    return bounds
