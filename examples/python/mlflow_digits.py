"""Settings and figures of a training in MLflow's file store, from rank 0.

    pip install mlflow
    psring run -n 2 -- python3 mlflow_digits.py --store=mlruns
    MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri=mlruns
"""

import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import digits
import psring.torch as ps

os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer releases prefer databases
import mlflow

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with MNIST's IDX files; without it, digits are drawn")
parser.add_argument("--store", default="mlruns", help="folder for MLflow")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=32)


def main():
    args = parser.parse_args()
    ps.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if ps.rank() == 0:
        mlflow.set_tracking_uri("file://" + os.path.abspath(args.store))
        mlflow.set_experiment("digits")
        mlflow.start_run()
        mlflow.log_params({**vars(args), "workers": ps.size(), "mode": ps.mode()})
        ps.log_to(mlflow.log_metrics)

    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    opt = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    data = digits.load(args.data)
    sampler = DistributedSampler(data, ps.size(), ps.rank())
    test = digits.load(args.data, train=False)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(data, args.batch_size, sampler=sampler, drop_last=True):
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            opt.step()
            opt.zero_grad()
            ps.log(loss=loss.detach())
        with torch.no_grad():
            right = [(model(images).argmax(1) == labels).float().mean() for images, labels in DataLoader(test, 256)]
        ps.log(accuracy=torch.stack(right).mean())
    if ps.rank() == 0:
        mlflow.end_run()
        print(f"accuracy {torch.stack(right).mean():.3f}, in {args.store}")
    ps.shutdown()


if __name__ == "__main__":
    main()
