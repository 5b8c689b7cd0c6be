"""A model cut in two, and replicas of it: process sets.

Ranks 2k and 2k+1 hold the two halves of one replica and pass activations; the
same halves of all replicas average their gradients.

    torchrun --nproc-per-node=4 model_parallel_replicas.py
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

import digits
import psring.torch as ps

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with MNIST's IDX files; without it, digits are drawn")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--batch-size", type=int, default=64)


def main():
    args = parser.parse_args()
    ps.init()
    torch.set_num_threads(1)
    if ps.size() % 2:
        raise SystemExit("an even number of ranks, please: each replica takes two")
    replica, half = divmod(ps.rank(), 2)
    pair = ps.add_process_set([2 * replica, 2 * replica + 1])
    peers = ps.add_process_set(range(half, ps.size(), 2))

    torch.manual_seed(half)
    if half == 0:
        part = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU())
    else:
        part = nn.Linear(128, 10)
    opt = ps.DistributedOptimizer(torch.optim.SGD(part.parameters(), lr=0.1), model=part, process_set=peers)

    images, labels = digits.load(args.data).tensors
    choose = torch.Generator().manual_seed(replica)  # both halves draw the same batch
    for step in range(args.steps):
        batch = torch.randint(len(labels), (args.batch_size,), generator=choose)
        opt.zero_grad()
        # Activations go from the first half to the second, their gradient back:
        # broadcast is differentiable, and averages gradients over the pair.
        hidden = part(images[batch]) if half == 0 else torch.zeros(args.batch_size, 128, requires_grad=True)
        received = ps.broadcast(hidden, root_rank=2 * replica, name=f"hidden{replica}", process_set=pair)
        if half == 0:
            loss = received.sum() * 0.0
        else:
            loss = F.cross_entropy(part(received), labels[batch]) * pair.size()
        loss.backward()
        opt.step()
        if step % 20 == 19:
            loss = ps.sum(loss.item()) / ps.size()  # the first halves add 0, the second twice theirs
            ps.log(step=step, loss=loss)
            if ps.rank() == 0:
                print(f"step {step}: loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
