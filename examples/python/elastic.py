"""A job that goes on where it was when one of its processes is lost, with no checkpoint in the script.

    psring run -n 4 --max-restarts=3 -- python3 elastic.py

Kill a worker to see it. With --state-dir=DIR for psring run, the same command goes on after that has been killed, too.
"""

import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

import digits
import psring.torch as ps

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with MNIST's IDX files; without it, digits are drawn")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--commit-every", type=int, default=10, help="so many steps are lost at most")
args = parser.parse_args()

ps.init()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = ps.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.001), model=model)
dataset = digits.load(args.data, train=True)
sampler = ps.elastic.ElasticSampler(dataset)
loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
state = ps.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, step=0)


@ps.elastic.run
def train(state):
    if ps.rank() == 0:
        print(f"begins at step {state.step}, in epoch {state.epoch}", flush=True)
    while state.epoch < args.epochs:
        loss = torch.tensor(0.0)
        for batch, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            state.step += 1
            sampler.record_batch(batch, len(images))
            if state.step % args.commit_every == 0:
                state.commit()
        mean = ps.mean(loss.item())
        if ps.rank() == 0:
            print(f"epoch {state.epoch}: loss {mean:.4f}", flush=True)
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()


train(state)
