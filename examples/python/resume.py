"""Checkpoints: after every epoch and at SIGTERM; the same command goes on from the last one.

    psring run -n 4 -- python3 resume.py --checkpoint=run.pt

Rank 0's host has the file, so after a restart rank 0 has to be on a host that sees it.
"""

import argparse
import os
import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import digits
import psring.torch as ps

NOT_OVER = 75  # exit code: start it again

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint", required=True, help="file, which is replaced as a whole")
parser.add_argument("--data", help="folder with MNIST's IDX files; without it, digits are drawn")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=64)
args = parser.parse_args()

ps.init()
torch.manual_seed(0)
preemption = ps.Preemption()  # SIGTERM: Kubernetes takes the pod away, or Slurm's time is nearly over
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
dataset = digits.load(args.data, train=True)
sampler = DistributedSampler(dataset, num_replicas=ps.size(), rank=ps.rank())
loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)

# Rank 0 reads, and gives the others its model and its optimizer's state.
begin = {"epoch": 0, "batch": 0}
if ps.rank() == 0 and os.path.exists(args.checkpoint):
    saved = torch.load(args.checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    begin = saved["begin"]
begin = ps.broadcast_object(begin)
ps.broadcast_parameters(model.state_dict(), root_rank=0)
ps.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = ps.DistributedOptimizer(optimizer, model=model)
if ps.rank() == 0:
    print(f"begins at batch {begin['batch']} of epoch {begin['epoch']}", flush=True)


def save(epoch, batch):
    """All ranks call it, as state_dict() may ask them for their parts."""
    optimizer.synchronize_parameters()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "begin": {"epoch": epoch, "batch": batch}}
    if ps.rank() == 0:
        torch.save(state, args.checkpoint + ".new")
        os.replace(args.checkpoint + ".new", args.checkpoint)


for epoch in range(begin["epoch"], args.epochs):
    sampler.set_epoch(epoch)
    done = begin["batch"] if epoch == begin["epoch"] else 0
    for batch, (images, labels) in enumerate(loader):
        if batch < done:
            continue  # that the checkpoint has seen
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if preemption.requested():
            last = batch + 1 == len(loader)
            save(*((epoch + 1, 0) if last else (epoch, batch + 1)))
            if ps.rank() == 0:
                print(f"SIGTERM: saved after batch {batch + 1} of epoch {epoch}", flush=True)
            ps.shutdown()  # when the others have come here, too
            sys.exit(NOT_OVER)
    save(epoch + 1, 0)
    mean = ps.mean(loss.item())
    if ps.rank() == 0:
        print(f"epoch {epoch}: loss {mean:.4f}", flush=True)
