"""A training of a worker: how far the loss falls, and a digest of the weights it ends with."""

import hashlib
import json
import os
import sys

import torch

import psring.torch as ps

ps.init()
torch.manual_seed(ps.rank())
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = ps.DistributedOptimizer(optimizer, model=model)
x = torch.randn(64, 20)
losses = []
for _ in range(30):
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
said = {
    "mode": ps.mode(), "before": losses[0], "after": losses[-1], "package": ps.__file__,
    "weights": hashlib.sha256(weights).hexdigest(),
}  # fmt: skip
with open(os.path.join(sys.argv[1], str(ps.rank())), "w") as file:
    json.dump(said, file)
