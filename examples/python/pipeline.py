"""A pipeline of two stages, and replicas of it: torch.distributed over psring.

Each replica has two ranks. They pass activations and their gradients, four parts of a batch after
another (torch.distributed.pipelining); the same stages of all replicas average their gradients
(DistributedDataParallel). Backend psring needs torch 2.7 or newer.

    psring run -n 4 -- python3 pipeline.py
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

import digits
import psring.torch as ps

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with MNIST's IDX files; without it, digits are drawn")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--batch-size", type=int, default=64, help="of a replica; a multiple of 4")


def main():
    args = parser.parse_args()
    ps.init()
    torch.set_num_threads(1)
    if ps.size() % 2:
        raise SystemExit("an even number of ranks, please: each replica takes two")
    dist.init_process_group("psring")
    mesh = init_device_mesh("cpu", (ps.size() // 2, 2), mesh_dim_names=("replica", "stage"))
    replica, stage = mesh.get_coordinate()

    torch.manual_seed(stage)
    if stage == 0:
        part = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU())
    else:
        part = nn.Linear(128, 10)
    part = DistributedDataParallel(part, process_group=mesh.get_group("replica"))
    opt = torch.optim.SGD(part.parameters(), lr=0.1, momentum=0.9)
    pipeline = Schedule1F1B(
        PipelineStage(part, stage, 2, torch.device("cpu"), group=mesh.get_group("stage")),
        n_microbatches=4,
        loss_fn=F.cross_entropy,
    )

    images, labels = digits.load(args.data).tensors
    choose = torch.Generator().manual_seed(replica)  # both stages draw the same batch
    for step in range(args.steps):
        batch = torch.randint(len(labels), (args.batch_size,), generator=choose)
        losses = []
        opt.zero_grad()
        if stage == 0:
            pipeline.step(images[batch])
        else:
            pipeline.step(target=labels[batch], losses=losses)
        opt.step()
        if step % 20 == 19:
            mine = sum(loss.item() for loss in losses) / 4
            loss = ps.sum(mine) / (ps.size() // 2)  # the first stages add 0
            ps.log(step=step, loss=loss)
            if ps.rank() == 0:
                print(f"step {step}: loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
