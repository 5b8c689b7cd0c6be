"""Gradient accumulation with mixed precision: GradScaler, clipping, a schedule.

    torchrun --nproc-per-node=2 accumulate_amp.py
    torchrun --nproc-per-node=2 accumulate_amp.py --update fused
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import digits
import psring.torch as ps

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with MNIST's IDX files; without it, digits are drawn")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accumulate", type=int, default=4, help="batches in one step")
parser.add_argument("--update", choices=["local", "fused"], default="local")


def main():
    args = parser.parse_args()
    ps.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=args.epochs)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    opt = ps.DistributedOptimizer(opt, model=model, update=args.update, scaler=scaler)

    data = digits.load(args.data)
    sampler = DistributedSampler(data, ps.size(), ps.rank())
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        batches = list(loader)
        batches = batches[: len(batches) // args.accumulate * args.accumulate]
        for number, (images, labels) in enumerate(batches, 1):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(images), labels) / args.accumulate
            if number % args.accumulate:
                with opt.no_sync():
                    scaler.scale(loss).backward()
                continue
            scaler.scale(loss).backward()
            if args.update == "local":  # fused gradients leave unclipped
                scaler.unscale_(opt)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
        schedule.step()
        loss = ps.mean(loss * args.accumulate)
        ps.log(epoch=epoch, loss=loss)
        if ps.rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, scale {scaler.get_scale():.0f}", flush=True)


if __name__ == "__main__":
    main()
