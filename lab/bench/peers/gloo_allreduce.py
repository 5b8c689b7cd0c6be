"""Gloo's allreduce through torch.distributed, measured as
lab/bench/allreduce_operation.cc measures psring's: new inputs before every batch of
iterations, a common start, every element of the result compared. Writes
OUT/rank-RANK.json.
"""

import argparse
import datetime
import json
import os
import sys
import time

CHUNK = 1 << 20


def pattern(torch, factor, iteration, first, out):
    """As lab/bench/pattern.h, into out."""
    for begin in range(0, out.numel(), CHUNK):
        part = out[begin:begin + CHUNK]
        element = torch.arange(first + begin, first + begin + part.numel())
        value = (element * 2654435761 + iteration * 40503) & 0xFFFFFFFF
        part.copy_(((value >> 25) + 1).float() * factor)


def is_sum(torch, ranks, iteration, runs, data):
    """Whether data is what summing `runs` times in place makes of the pattern."""
    factor = ranks * (ranks + 1) // 2 * ranks**(runs - 1)
    expected = torch.empty(min(CHUNK, data.numel()))
    for begin in range(0, data.numel(), CHUNK):
        part = data[begin:begin + CHUNK]
        wanted = expected[:part.numel()]
        pattern(torch, float(factor), iteration, begin, wanted)
        if not torch.equal(part, wanted):
            return False
    return True


def await_start(torch, dist):
    """As RankJob::AwaitStart."""
    start = torch.tensor([time.monotonic()], dtype=torch.float64)
    dist.all_reduce(start, op=dist.ReduceOp.MAX)
    start = start.item() + 2e-3
    asleep = start - 2e-4 - time.monotonic()
    if asleep > 0:
        time.sleep(asleep)
    while time.monotonic() < start:
        os.sched_yield()
    return start


def measure(args, torch, dist):
    data = torch.empty(args.size // 4)
    seconds = []
    cpu_seconds = []
    i = 0
    while i < args.warmup + args.iterations:
        timed = i >= args.warmup
        left = args.warmup + (args.iterations if timed else 0) - i
        runs = min(args.batch, left)
        pattern(torch, args.rank + 1, i, 0, data)
        start = before = await_start(torch, dist)
        cpu_before = time.process_time()
        for _ in range(runs):
            dist.all_reduce(data)
            now, cpu_now = time.monotonic(), time.process_time()
            if timed:
                seconds.append(now - before)
                cpu_seconds.append(cpu_now - cpu_before)
            before, cpu_before = now, cpu_now
        # What a rank does next takes a core from those that are still at it.
        time.sleep(before - start)
        # Nor does anybody verify before all are done.
        dist.barrier()
        if not is_sum(torch, args.ranks, i, runs, data):
            sys.exit(f'gloo_allreduce: iteration {i}: wrong sum')
        i += runs
    return {'rank': args.rank, 'cpu_seconds': cpu_seconds, 'seconds': seconds}


def main():
    parser = argparse.ArgumentParser()
    for name in ('rank', 'ranks', 'size', 'iterations', 'warmup', 'batch'):
        parser.add_argument('--' + name, type=int, required=True)
    for name in ('out', 'store', 'interface'):
        parser.add_argument('--' + name, required=True)
    args = parser.parse_args()
    os.environ['GLOO_SOCKET_IFNAME'] = args.interface
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method='file://' + args.store,
                            rank=args.rank, world_size=args.ranks,
                            timeout=datetime.timedelta(minutes=2))
    times = measure(args, torch, dist)
    with open(f'{args.out}/rank-{args.rank}.json', 'w') as file:
        json.dump(times, file)
    dist.barrier()
    dist.destroy_process_group()


main()
