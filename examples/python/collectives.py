"""Collectives of torch.distributed over backend psring and over Gloo, in turn in one job; prints a table.

    psring run -n 2 -- python3 collectives.py [--rounds=30] [--bytes=4,64K,1M,16M]

Each round makes every call over both, begins with another of the two than the round before, and checks what comes. The
figures are medians of rank 0, of the last nine tenths of the rounds. BYTES are those of one rank's part: of what it
brings for an allgather and gets of a reduce_scatter.
"""

import argparse
import statistics
import time
import warnings

import torch
import torch.distributed as dist

import psring.torch  # noqa: F401, registers the backend

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rounds", type=int, default=30)
parser.add_argument("--bytes", default="4,64K,1M,16M", help="of float32, separated by commas; K and M are powers of 1024")


def parse_bytes(text):
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    size = int(text if unit == 1 else text[:-1]) * unit
    if size < 4 or size % 4:
        parser.error(f"--bytes={text}: a multiple of 4, such as 64K")
    return size


def calls(numel, rank, size):
    """name: (what is called with a group, the tensor that it leaves, the value of its elements)."""
    part, whole, other = torch.empty(numel), torch.empty(numel * size), torch.empty(numel * size)

    def allreduce(group):
        part.fill_(rank + 1)
        return lambda: dist.all_reduce(part, group=group)

    def allgather(group):
        part.fill_(7)
        return lambda: dist.all_gather_into_tensor(whole, part, group=group)

    def reduce_scatter(group):
        whole.fill_(rank + 1)
        return lambda: dist.reduce_scatter_tensor(part, whole, group=group)

    def broadcast(group):
        part.fill_(rank + 5)
        return lambda: dist.broadcast(part, 0, group=group)

    def alltoall(group):
        whole.fill_(9)
        return lambda: dist.all_to_all_single(other, whole, group=group)

    total = size * (size + 1) // 2
    return {
        "all_reduce": (allreduce, part, total),
        "all_gather_into_tensor": (allgather, whole, 7),
        "reduce_scatter_tensor": (reduce_scatter, part, total),
        "broadcast": (broadcast, part, 5),
        "all_to_all_single": (alltoall, other, 9),
    }


def measure(prepare, result, value, group):
    result.zero_()
    call = prepare(group)
    dist.barrier(group=group)
    begin = time.perf_counter()
    call()
    seconds = time.perf_counter() - begin
    if not bool((result == value).all()):
        raise SystemExit(f"wrong sum or copy: {result[:4]} where all are {value}")
    return seconds


def main():
    args = parser.parse_args()
    sizes = [parse_bytes(text) for text in args.bytes.split(",")]
    warnings.filterwarnings("ignore", category=FutureWarning)  # newer torch has other names, which older ones lack
    torch.set_num_threads(1)
    dist.init_process_group("psring")
    groups = {"psring": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        print(f"{size} ranks, medians of {args.rounds} rounds\n\n| | bytes | psring | Gloo | Gloo / psring |\n|---|---|---|---|---|")
    for num_bytes in sizes:
        for name, call in calls(num_bytes // 4, rank, size).items():
            seconds = {backend: [] for backend in groups}
            for turn in range(args.rounds):
                for backend in sorted(groups, reverse=turn % 2 == 0):
                    seconds[backend].append(measure(*call, groups[backend]))
            ours, theirs = (statistics.median(seconds[backend][args.rounds // 10 :]) for backend in ("psring", "gloo"))
            if rank == 0:
                print(f"| {name} | {num_bytes:,} | {1e6 * ours:,.0f} us | {1e6 * theirs:,.0f} us | {theirs / ours:.2f} |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
