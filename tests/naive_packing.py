"""Plain-Python oracles of the packing kernels, sample by sample."""

from functools import cache


def longest_first(lengths):
    """Ids by length descending, then id."""
    return sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))


def first_fit_decreasing(lengths, capacity):
    """Bins of ids: longest first, each to the first bin with room."""
    bins, rooms = [], []
    for i in longest_first(lengths):
        place = next((b for b, room in enumerate(rooms) if room >= lengths[i]), len(bins))
        if place == len(bins):
            bins.append([])
            rooms.append(capacity)
        bins[place].append(i)
        rooms[place] -= lengths[i]
    return bins


def best_fit_decreasing(lengths, capacity):
    """Bins of ids: longest first, to the least room that takes it, then the oldest such room."""
    bins, rooms, since = [], [], []
    for clock, i in enumerate(longest_first(lengths)):
        open_bins = [b for b in range(len(bins)) if rooms[b] >= lengths[i]]
        if open_bins:
            place = min(open_bins, key=lambda b: (rooms[b], since[b]))
        else:
            place = len(bins)
            bins.append([])
            rooms.append(capacity)
            since.append(0)
        bins[place].append(i)
        rooms[place] -= lengths[i]
        since[place] = clock if lengths[i] else since[place]
    return bins


def first_fit_vectors(order, rows, caps, leads=None):
    """Bin of each item; with `leads`, amount 0 is capped by the value of a bin's first item."""
    used, limits, bins = [], [], {}
    for item in order:
        place = next(
            (
                b
                for b in range(len(used))
                if all(u + x <= c for u, x, c in zip(used[b], rows[item], limits[b], strict=True))
            ),
            len(used),
        )
        if place == len(used):
            used.append([0] * len(caps))
            limits.append(list(caps) if leads is None else [leads[item], *caps[1:]])
        used[place] = [u + x for u, x in zip(used[place], rows[item], strict=True)]
        bins[item] = place
    return [bins[item] for item in sorted(bins)], len(used)


def next_fit(lengths, capacity, padded, rows, caps):
    """Bins of ids in the given order."""
    bins = []
    for i in range(len(lengths)):
        if bins and fits([*bins[-1], i], lengths, capacity, padded, rows, caps):
            bins[-1].append(i)
        else:
            bins.append([i])
    return bins


def fits(ids, lengths, capacity, padded, rows, caps):
    """Whether samples fit one bin together."""
    own = [lengths[i] for i in ids]
    taken = len(own) * max(own, default=0) if padded else sum(own)
    return taken <= capacity and all(
        sum(rows[i][a] for i in ids) <= cap for a, cap in enumerate(caps)
    )


def least_bins(lengths, capacity):
    """Martello and Toth's L2, every threshold tried."""
    best = 0
    for threshold in {0, *(length for length in lengths if 2 * length <= capacity)}:
        alone = [x for x in lengths if x > capacity - threshold]
        large = [x for x in lengths if capacity < 2 * x and x <= capacity - threshold]
        small = [x for x in lengths if threshold <= x and 2 * x <= capacity]
        rest = sum(small) - (len(large) * capacity - sum(large))
        best = max(best, len(alone) + len(large) + max(0, -(-rest // capacity)))
    return best


def fewest_bins(num, allowed):
    """Fewest bins over all packings of `num` samples; `allowed(ids)` says whether they may share.

    O(3**num).
    """
    good = [False] * 2**num
    for subset in range(1, 2**num):
        good[subset] = allowed([i for i in range(num) if subset >> i & 1])

    @cache
    def fewest(rest):
        if not rest:
            return 0
        lowest, best, subset = rest & -rest, num, rest
        while subset:
            if subset & lowest and good[subset]:
                best = min(best, 1 + fewest(rest & ~subset))
            subset = (subset - 1) & rest
        return best

    return fewest(2**num - 1)


def fill_bins(lengths, capacity, enough, thirds=8):
    """Contents (sorted lengths) of each bin as `fill_bins` without randomness fills them."""
    stock = sorted(lengths)
    bins = []
    while stock:
        limit = stock[-1]
        content, room, copies, length = [], capacity, 1, limit
        while True:
            for _ in range(copies):
                stock.remove(length)
            content += [length] * copies
            room -= copies * length
            length = _within(stock, min(limit, room))
            if length <= 0 or room <= 2 * length:
                break
            copies = min(stock.count(length), -(-room // length) - 2)
        if length > 0:
            end = _best_end(stock, room, limit, enough, thirds)
            for part in end:
                stock.remove(part)
            content += end
        more = min(stock.count(part) // content.count(part) for part in set(content))
        for part in content * more:
            stock.remove(part)
        bins += [sorted(content)] * (more + 1)
    return sorted(bins)


def _within(stock, room):
    return max((length for length in stock if length <= room), default=-1)


def _best_pair(stock, room, limit, least, enough):
    a = _within(stock, min(room, limit))
    best = None
    if a < 0:
        return least, best
    if room - a < least:
        least, best = room - a, [a]
    b = _within(stock, min(max(1, room // 2), limit))
    for _ in range(64):
        if b <= 0 or least <= enough or room - b - limit >= least:
            break
        a = _within(stock, min(room - b, limit))
        if (a > b or (a == b and stock.count(a) > 1)) and room - a - b < least:
            least, best = room - a - b, [a, b]
        b = _within(stock, b - 1)
    return least, best


def _best_end(stock, room, limit, enough, thirds):
    least, best = _best_pair(stock, room, limit, room, enough)
    step, third = max(1, room // 3 // thirds), room // 3
    for _ in range(thirds):
        third = _within(stock, third)
        if third <= 0 or least <= enough:
            break
        rest = list(stock)
        rest.remove(third)
        left, pair = _best_pair(rest, room - third, limit, least, enough)
        if left < least:
            least, best = left, [*pair, third]
        third -= step
    return best or []
