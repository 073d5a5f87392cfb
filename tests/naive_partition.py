"""Plain-Python oracles of the partition kernels, and the best partition by trying them all."""

from itertools import product


class Rules:
    """Items dearest first, and what parts may hold; `amounts` has a row an item, `caps` a part."""

    def __init__(self, weights, inverse, amounts, caps, low, high):
        self.weights, self.inverse, self.amounts, self.caps = weights, inverse, amounts, caps
        self.low, self.high = low, high

    def load(self, items):
        return sum(self.weights[item] for item in items)

    def end(self, part, items):
        return float(self.load(items)) * self.inverse[part]

    def fits(self, part, items):
        return all(
            sum(self.amounts[item][a] for item in items) <= cap
            for a, cap in enumerate(self.caps[part])
        )

    def legal(self, part, items):
        return self.low <= len(items) <= self.high and self.fits(part, items)


def is_open(rules, held, part):
    """Whether a part may take one more without leaving too few items for the others."""
    spare = len(rules.weights) - rules.low * len(held)
    spare -= sum(max(0, len(items) - rules.low) for items in held)
    return len(held[part]) < rules.high and (len(held[part]) < rules.low or spare > 0)


def parts_of(held, num_items):
    parts = [-1] * num_items
    for part, items in enumerate(held):
        for item in items:
            parts[item] = part
    return parts


def place_by_time(rules):
    """Each item to the open part it fits that then ends first; fewer items, lower index first."""
    held = [[] for _ in rules.inverse]
    for item in range(len(rules.weights)):
        keys = [
            (rules.end(part, [*items, item]), len(items), part)
            for part, items in enumerate(held)
            if is_open(rules, held, part) and rules.fits(part, [*items, item])
        ]
        if keys:
            held[min(keys)[-1]].append(item)
    return parts_of(held, len(rules.weights))


def place_by_load(rules):
    """Each item to the open part with least load; fewer items, lower index first."""
    held = [[] for _ in rules.inverse]
    for item in range(len(rules.weights)):
        opened = [part for part in range(len(held)) if is_open(rules, held, part)]
        held[min(opened, key=lambda p: (rules.load(held[p]), len(held[p]), p))].append(item)
    return parts_of(held, len(rules.weights))


def place_by_fit(rules, order, tightest):
    """Each item to the open part with least room in its tightest amount; stops where none fits."""
    held = [[] for _ in rules.inverse]
    for item in order:
        keys = []
        for part, items in enumerate(held):
            if is_open(rules, held, part) and rules.fits(part, [*items, item]):
                a = tightest[item]
                used = sum(rules.amounts[other][a] for other in items)
                keys.append((rules.caps[part][a] - used, part))
        if not keys:
            break
        held[min(keys)[1]].append(item)
    return parts_of(held, len(rules.weights))


def place_by_differences(weights, num_parts, chunk):
    """Largest differencing on whole lists; states are numbered, the second of a pair lives on."""
    states = {}
    for number, begin in enumerate(range(0, len(weights), chunk)):
        states[number] = [(weights[i], [i]) for i in range(begin, min(begin + chunk, len(weights)))]

    def spread(number):
        sets = states[number]
        return sets[0][0] - (sets[-1][0] if len(sets) == num_parts else 0)

    while len(states) > 1:
        first, second = sorted(states, key=lambda n: (-spread(n), n))[:2]
        a, b = states.pop(first), states[second]
        size = min(num_parts, len(a) + len(b))
        sets = []
        for t in range(size):
            total, items = a[t] if t < len(a) else (0, [])
            if size - 1 - t < len(b):
                total, items = total + b[size - 1 - t][0], items + b[size - 1 - t][1]
            sets.append((total, items))
        states[second] = sorted(sets, key=lambda entry: (-entry[0], entry[1][0]))
    parts = [-1] * len(weights)
    for sets in states.values():
        for part, (_, items) in enumerate(sets):
            for item in items:
                parts[item] = part
    return parts


def best_swap(rules, a, b, held, can_move):
    """Move or swap that lets both end earliest; the first found of equals."""
    inverse_a, inverse_b = rules.inverse[a], rules.inverse[b]
    load_a, load_b = float(rules.load(held[a])), float(rules.load(held[b]))
    ideal = (load_a * inverse_a - load_b * inverse_b) / (inverse_a + inverse_b)
    best, pair = load_a * inverse_a, (-1, -1)
    for give in held[a]:
        weight = rules.weights[give]
        below = [item for item in held[b] if rules.weights[item] <= weight - ideal]
        above = [item for item in reversed(held[b]) if rules.weights[item] > weight - ideal]
        for backs in (below, above, [-1] if can_move else []):
            for back in backs:
                moved = weight - (rules.weights[back] if back >= 0 else 0)
                end = max((load_a - moved) * inverse_a, (load_b + moved) * inverse_b)
                left = [item for item in held[a] if item != give]
                gained = [item for item in held[b] if item != back] + [give]
                if back >= 0:
                    left.append(back)
                if end < best and rules.fits(a, left) and rules.fits(b, gained):
                    best, pair = end, (give, back)
                    break
    return best, pair


def split_exactly(rules, a, b, items):
    """Best of all splits in the order of the Gray code; sides, or None where none is legal."""
    best, best_sides = None, None
    for visit in range(2 ** len(items)):
        mask = visit ^ (visit >> 1)
        sides = [(mask >> t) & 1 for t in range(len(items))]
        in_a = [item for item, side in zip(items, sides, strict=True) if side == 0]
        in_b = [item for item, side in zip(items, sides, strict=True) if side == 1]
        if rules.legal(a, in_a) and rules.legal(b, in_b):
            end = max(rules.end(a, in_a), rules.end(b, in_b))
            if best is None or end < best:
                best, best_sides = end, sides
    return best, best_sides


def split_by_differences(weights, items, in_pairs, handicap):
    """Two-way differencing; sides of the items, part b starting with the handicap."""
    values = [weights[item] for item in items]
    if in_pairs:
        values = [*values, 0] if len(values) % 2 else values
        nodes = [values[t] - values[t + 1] for t in range(0, len(values), 2)]
    else:
        nodes = values
    left = [(-value, node) for node, value in enumerate([*nodes, handicap])]
    opposite = {node: set() for node in range(len(left))}
    while len(left) > 1:
        left.sort()
        (value, node), (other_value, other) = left[:2]
        opposite[node].add(other)
        opposite[other].add(node)
        left = [(value - other_value, node), *left[2:]]
    colour, todo = {len(nodes): 1}, [len(nodes)]
    while todo:
        node = todo.pop()
        for other in opposite[node] - colour.keys():
            colour[other] = 1 - colour[node]
            todo.append(other)
    if in_pairs:
        return [colour[t // 2] ^ (t % 2) for t in range(len(items))]
    return [colour[t] for t in range(len(items))]


class Random:
    """Knuth's MMIX generator."""

    def __init__(self):
        self.state = 0

    def below(self, number):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % number


class Search:
    """The local search on lists of items."""

    def __init__(self, rules, parts, goal, exact):
        self.rules, self.goal, self.exact = rules, goal, exact
        self.held = [
            [item for item, part in enumerate(parts) if part == p]
            for p in range(len(rules.inverse))
        ]

    def end(self, part):
        return self.rules.end(part, self.held[part])

    def by_end(self):
        return sorted(range(len(self.held)), key=lambda part: (self.end(part), part))

    def take(self, a, b, items, sides):
        self.held[a] = [item for item, side in zip(items, sides, strict=True) if side == 0]
        self.held[b] = [item for item, side in zip(items, sides, strict=True) if side == 1]

    def split(self, a, b, items):
        rules = self.rules
        if len(items) <= self.exact:
            return split_exactly(rules, a, b, items)
        inverse_a, inverse_b = rules.inverse[a], rules.inverse[b]
        share = (inverse_b - inverse_a) / (inverse_a + inverse_b)
        excess = int((float(rules.load(items)) * share + 0.5) // 1)
        sides = split_by_differences(rules.weights, items, rules.high - rules.low < 2, abs(excess))
        flipped = [1 - side for side in sides]
        options = [sides, flipped] if excess == 0 else [flipped if excess < 0 else sides]
        for option in options:
            pair = [
                [item for item, side in zip(items, option, strict=True) if side == which]
                for which in (0, 1)
            ]
            if rules.legal(a, pair[0]) and rules.legal(b, pair[1]):
                return max(rules.end(a, pair[0]), rules.end(b, pair[1])), option
        return None, None

    def share_anew(self, a, b):
        held, rules, now = self.held, self.rules, self.end(a)
        can_move = len(held[a]) > rules.low and len(held[b]) < rules.high
        end, (give, back) = best_swap(rules, a, b, held, can_move)
        items = sorted(held[a] + held[b])
        if end > self.goal:
            split_end, sides = self.split(a, b, items)
            if split_end is not None and split_end < end:
                self.take(a, b, items, sides)
                return True
        if give < 0 or end >= now:
            return False
        sides = [int(item in held[b]) ^ int(item in (give, back)) for item in items]
        self.take(a, b, items, sides)
        return True

    def mix(self, a, b, random):
        held, rules = self.held, self.rules
        if not held[a] or not held[b]:
            return
        give = held[a][random.below(len(held[a]))]
        back = held[b][random.below(len(held[b]))]
        new_a = sorted([item for item in held[a] if item != give] + [back])
        new_b = sorted([item for item in held[b] if item != back] + [give])
        end = max(rules.end(a, new_a), rules.end(b, new_b))
        if end < self.end(self.by_end()[-1]) and rules.fits(a, new_a) and rules.fits(b, new_b):
            held[a], held[b] = new_a, new_b


def improve(rules, parts, goal, budget, patience, exact=10):
    """Parts, last end and budget after the search."""
    search, random, improved = Search(rules, parts, goal, exact), Random(), True
    held, num_parts = search.held, len(rules.inverse)
    while improved and budget > 0 and search.end(search.by_end()[-1]) > goal:
        a, improved, waited = search.by_end()[-1], False, 0
        for turn in range(num_parts - 1):
            b = search.by_end()[turn]
            budget -= len(held[a]) + len(held[b])
            improved = search.share_anew(a, b)
            if improved or budget <= 0:
                break
        while not improved and num_parts > 2 and waited < patience and budget > 0:
            at_b, at_c = random.below(num_parts - 1), random.below(num_parts - 2)
            b, c = search.by_end()[at_b], search.by_end()[at_c + (at_c >= at_b)]
            spent = len(held[a]) + 2 * (len(held[b]) + len(held[c]))
            budget, waited = budget - spent, waited + spent
            search.mix(b, c, random)
            improved = search.share_anew(a, b) or search.share_anew(a, c)
    return parts_of(held, len(parts)), search.end(search.by_end()[-1]), budget


def best_makespan(rules):
    """Least last end over all legal partitions, or None where there is none."""
    best = None
    for parts in product(range(len(rules.inverse)), repeat=len(rules.weights)):
        held = [
            [item for item, part in enumerate(parts) if part == p]
            for p in range(len(rules.inverse))
        ]
        if all(rules.legal(part, items) for part, items in enumerate(held)):
            end = max(rules.end(part, items) for part, items in enumerate(held))
            best = end if best is None else min(best, end)
    return best
