"""A LightningModule in any topology.

    pip install lightning
    psring run -n 2 --mode=ps --sync=async -- python3 lightning_digits.py
    psring compare --modes=ring,ps-bsp,ps-async -- python3 lightning_digits.py
"""

import argparse
import os

import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import digits
import psring.torch as ps
from psring.lightning import PsringStrategy

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with MNIST's IDX files; without it, digits are drawn")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=32)


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, index):
        images, labels = batch
        return F.cross_entropy(self.net(images), labels)

    def validation_step(self, batch, index):
        images, labels = batch
        self.log("accuracy", (self.net(images).argmax(1) == labels).float().mean(), sync_dist=True)

    def on_validation_epoch_end(self):
        ps.log(accuracy=self.trainer.callback_metrics["accuracy"])  # for psring compare

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main():
    args = parser.parse_args()
    torch.set_num_threads(1)
    lightning.seed_everything(int(os.environ.get("PSRING_SEED", 0)))
    trainer = lightning.Trainer(
        strategy=PsringStrategy(), max_epochs=args.epochs, enable_progress_bar=False, logger=False,
        enable_checkpointing=False, num_sanity_val_steps=0,
    )  # fmt: skip
    data, test = digits.load(args.data), digits.load(args.data, train=False)
    model = Classifier()
    trainer.fit(model, DataLoader(data, args.batch_size, shuffle=True), DataLoader(test, 250))
    if trainer.is_global_zero:
        print(f"accuracy {trainer.callback_metrics['accuracy']:.3f}")
    ps.shutdown()


if __name__ == "__main__":
    main()
