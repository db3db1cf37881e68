"""Places the buffers of a table with one allocator of the package omnimalloc, on one thread.

    python3 peer.py ALLOCATOR TABLE OUT SECONDS [CAPACITY]

TABLE has a line `lower upper size` for each buffer. OUT gets a line `SECONDS PROVEN` (processor
time of the allocator alone; 1 when it says that its answer is the least) and a line with the offset
of each buffer. With CAPACITY the allocator is only asked for a fit, and OUT holds the first line
alone when it finds none. Exit code 3: the allocator is not installed.
"""

import sys
import time

try:
    import omnimalloc
    from omnimalloc import Allocation, allocators
except ImportError:
    sys.exit(3)


def minimalloc(buffers, seconds):
    try:
        import minimalloc  # noqa: F401
    except ImportError:
        sys.exit(3)
    return allocators.MinimallocAllocator(timeout=seconds).allocate(buffers), False


def supermalloc(buffers, seconds):
    found = allocators.SupermallocAllocator(timeout=seconds, num_threads=1).solve(buffers)
    return found.allocations, found.proved_optimal


def supermalloc_fit(buffers, seconds, capacity):
    """Its exact search, told the capacity: one round over its own orders."""
    from omnimalloc._cpp import Partition, try_solve_many
    from omnimalloc.allocators.supermalloc import DEFAULT_HEURISTICS

    base = Partition.from_allocations(buffers)
    orders = [base.reorder("".join(order)) for order in DEFAULT_HEURISTICS]
    found = try_solve_many(
        [order.with_bound(capacity + 1) for order in orders],
        capacity + 1,
        None,
        canonical=True,
        dominance=True,
        floor_inference=True,
        monotonic_floor=True,
        decompose=True,
        timeout=seconds,
        num_threads=1,
    )
    return found and found.allocations


PLACE = {
    "supermalloc": supermalloc,
    "minimalloc": minimalloc,
    "omni": lambda buffers, _: (allocators.OmniAllocator().allocate(buffers), False),
    "greedy_by_all": lambda buffers, _: (
        allocators.GreedyByAllAllocator(num_threads=1).allocate(buffers),
        False,
    ),
    "telamalloc": lambda buffers, seconds: (
        allocators.TelamallocAllocator(timeout=seconds).allocate(buffers),
        False,
    ),
}


def main(name, table, out, seconds, capacity=None):
    omnimalloc.set_max_threads(1)
    with open(table) as lines:
        rows = [map(int, line.split()) for line in lines]
    buffers = tuple(
        Allocation(id=number, size=size, start=lower, end=upper)
        for number, (lower, upper, size) in enumerate(rows)
    )
    start = time.process_time()
    if capacity is None:
        placed, proven = PLACE[name](buffers, float(seconds))
    else:
        placed, proven = supermalloc_fit(buffers, float(seconds), int(capacity)), False
    used = time.process_time() - start
    offsets = {buffer.id: buffer.offset for buffer in placed or ()}
    with open(out, "w") as lines:
        print(used, int(proven), file=lines)
        for number in range(len(offsets)):
            print(offsets[number], file=lines)


main(*sys.argv[1:])
