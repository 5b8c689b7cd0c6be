"""How long a training step takes: over psring, over PyTorch's own DDP, or alone.

    psring run -n 2 -- python3 throughput.py --model=mlp
    torchrun --nproc-per-node=2 throughput.py --model=mlp --over=ddp
    python3 throughput.py --model=mlp --over=nothing

Prints the median time of a step on rank 0. Data are random, and made anew for
each step. Hold results against each other only if they were measured in turn on
the same machine.
"""

import argparse
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from resnet_cifar import Block

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["mlp", "resnet18"], default="mlp")
parser.add_argument("--over", choices=["psring", "ddp", "nothing"], default="psring")
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--warm-up", type=int, default=10)
parser.add_argument("--bare", action="store_true", help="print the number of milliseconds alone")


def resnet18():
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    channels = 64
    for size in range(4):
        for block in range(2):
            layers.append(Block(channels, 64 << size, 2 if size and not block else 1))
            channels = 64 << size
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def make_model(name):
    if name == "resnet18":
        return resnet18(), (3, 32, 32)
    layers = [nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)]
    return nn.Sequential(*layers), (784,)


def main():
    args = parser.parse_args()
    torch.manual_seed(0)
    model, shape = make_model(args.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rank = 0
    if args.over == "psring":
        import psring.torch as ps

        ps.init()
        rank = ps.rank()
        optimizer = ps.DistributedOptimizer(optimizer, model=model)
    elif args.over == "ddp":
        torch.distributed.init_process_group("gloo")
        rank = torch.distributed.get_rank()
        model = nn.parallel.DistributedDataParallel(model)
    times = []
    for _ in range(args.warm_up + args.steps):
        data, target = torch.randn(args.batch_size, *shape), torch.randint(10, (args.batch_size,))
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(data), target).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    if rank == 0:
        median = statistics.median(times[args.warm_up :])
        text = f"{1000 * median:.2f}"
        print(text if args.bare else f"{args.model} over {args.over}: {text} ms a step", flush=True)
    if args.over == "ddp":
        del model  # after its process group, it might never end
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
