"""Two models, two optimizers, one job: a small GAN that draws digits.

    torchrun --nproc-per-node=2 gan.py
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
parser.add_argument("--batch-size", type=int, default=64)


def main():
    args = parser.parse_args()
    ps.init()
    torch.set_num_threads(1)
    torch.manual_seed(ps.rank())  # noise differs; weights become rank 0's below
    generator = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 784), nn.Sigmoid())
    critic = nn.Sequential(nn.Linear(784, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
    opt_g = ps.DistributedOptimizer(torch.optim.Adam(generator.parameters(), lr=1e-3), model=generator)
    opt_c = ps.DistributedOptimizer(torch.optim.Adam(critic.parameters(), lr=1e-3), model=critic)

    data = digits.load(args.data)
    sampler = DistributedSampler(data, ps.size(), ps.rank())
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, _ in loader:
            real = images.view(-1, 784)
            fake = generator(torch.randn(len(real), 16))
            ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)

            opt_c.zero_grad()
            # Two losses: the first backward only accumulates.
            with opt_c.no_sync():
                F.binary_cross_entropy_with_logits(critic(real), ones).backward()
            F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros).backward()
            opt_c.step()

            # The generator's loss passes through the critic, which must not send
            # gradients meanwhile.
            critic.requires_grad_(False)
            opt_g.zero_grad()
            loss = F.binary_cross_entropy_with_logits(critic(fake), ones)
            loss.backward()
            opt_g.step()
            critic.requires_grad_(True)
        loss = ps.mean(loss)
        ps.log(epoch=epoch, loss=loss)
        if ps.rank() == 0:
            print(f"epoch {epoch}: generator's loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
