"""A small ResNet on images of CIFAR-10's size; synthetic ones by default.

    torchrun --nproc-per-node=2 resnet_cifar.py
    PSRING_MODE=ps PSRING_SYNC=ssp:3 torchrun --nproc-per-node=2 resnet_cifar.py
    PSRING_MODE=ddp torchrun --nproc-per-node=2 resnet_cifar.py
"""

import argparse
import os
import time

import torch
import torch.nn.functional as F
from torch import nn

import psring.torch as ps

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with CIFAR-10's data_batch_1.bin to data_batch_5.bin")
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--blocks", type=int, default=1, help="blocks of each of the three sizes")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--sync-batch-norm", action="store_true")


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.short = nn.Conv2d(inner, outer, 1, stride, bias=False) if stride > 1 or inner != outer else nn.Identity()

    def forward(self, x):
        out = self.norm2(self.second(F.relu(self.norm1(self.first(x)))))
        return F.relu(out + self.short(x))


def resnet(width, blocks):
    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    channels = width
    for size in range(3):
        for block in range(blocks):
            outer = width << size
            layers.append(Block(channels, outer, 2 if size and not block else 1))
            channels = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def load(folder):
    if folder:
        data = b"".join(
            open(os.path.join(folder, f"data_batch_{i}.bin"), "rb").read() for i in range(1, 6)
        )
        rows = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, 3073)
        return rows[:, 1:].reshape(-1, 3, 32, 32).float() / 127.5 - 1, rows[:, 0].long()
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (2000,), generator=random)
    patterns = torch.randn(10, 3, 32, 32, generator=random)
    return patterns[labels] + torch.randn(2000, 3, 32, 32, generator=random), labels


def main():
    args = parser.parse_args()
    ps.init()
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ.get("PSRING_SEED", 0)))
    model = resnet(args.width, args.blocks)
    if args.sync_batch_norm:
        model = ps.SyncBatchNorm.convert_sync_batchnorm(model)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    opt = ps.DistributedOptimizer(opt, model=model)
    images, labels = load(args.data)
    choose = torch.Generator().manual_seed(ps.rank())
    begin = time.perf_counter()
    for step in range(args.steps):
        batch = torch.randint(len(labels), (args.batch_size,), generator=choose)
        opt.zero_grad()
        out = model(images[batch])
        loss = F.cross_entropy(out, labels[batch])
        loss.backward()
        opt.step()
        ps.log(step=step, loss=loss, accuracy=(out.argmax(1) == labels[batch]).float().mean())
    opt.synchronize_parameters()
    seconds = time.perf_counter() - begin
    loss, accuracy = ps.mean(loss), ps.mean((out.argmax(1) == labels[batch]).float().mean())
    if ps.rank() == 0:
        rate = args.steps * args.batch_size * ps.size() / seconds
        print(f"loss {loss.item():.3f}, accuracy {100 * accuracy.item():.0f}%, {rate:.0f} images/s", flush=True)


if __name__ == "__main__":
    main()
