"""The loop that people write without psring, on random images: torchvision's
resnet18 or resnet50, SGD, autocast. Prints the images a second, without the
first third of the steps.

Needs nothing but torch. --ddp: in DistributedDataParallel over NCCL (Gloo on the
CPU), with one rank.
"""

import argparse
import contextlib
import tempfile
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, wide, out, stride, deep):
        super().__init__()
        sides = [(wide, out, 3, stride), (out, out, 3, 1)]
        if deep:
            sides = [(wide, out, 1, 1), (out, out, 3, stride), (out, 4 * out, 1, 1)]
        layers = []
        for i, (a, b, kernel, step) in enumerate(sides):
            layers += [nn.ReLU(inplace=True)] if i > 0 else []
            layers += [nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False),
                       nn.BatchNorm2d(b)]
        self.layers = nn.Sequential(*layers)
        last = sides[-1][1]
        self.around = nn.Identity() if stride == 1 and wide == last else nn.Sequential(
            nn.Conv2d(wide, last, 1, stride, bias=False), nn.BatchNorm2d(last))

    def forward(self, x):
        return torch.relu(self.layers(x) + self.around(x))


def resnet(name, channels, classes):
    deep = name == 'resnet50'
    layers = [nn.Conv2d(channels, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64),
              nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    wide = 64
    for i, blocks in enumerate((3, 4, 6, 3) if deep else (2, 2, 2, 2)):
        for j in range(blocks):
            out = 64 << i
            layers.append(Block(wide, out, 2 if i > 0 and j == 0 else 1, deep))
            wide = 4 * out if deep else out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(wide, classes))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--model', required=True, choices=['resnet18', 'resnet50'])
    parser.add_argument('--shape', required=True)
    parser.add_argument('--batch', type=int, required=True)
    parser.add_argument('--steps', type=int, required=True)
    parser.add_argument('--precision', required=True)
    parser.add_argument('--device', required=True)
    parser.add_argument('--ddp', action='store_true')
    args = parser.parse_args()
    channels, height, width = map(int, args.shape.split('x'))
    on_gpu = args.device == 'cuda'
    tf32 = args.precision != 'fp32'
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    model = resnet(args.model, channels, 1000).to(args.device)
    if args.ddp:
        store = tempfile.NamedTemporaryFile()
        torch.distributed.init_process_group(
            'nccl' if on_gpu else 'gloo', init_method='file://' + store.name + '.store',
            rank=0, world_size=1)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randint(256, (4 * args.batch, channels, height, width),
                           dtype=torch.uint8)
    labels = torch.randint(1000, (4 * args.batch,))
    if on_gpu:
        images, labels = images.pin_memory(), labels.pin_memory()
    types = {'bf16': torch.bfloat16, 'fp16': torch.float16}
    autocast = (torch.autocast(args.device, types[args.precision])
                if args.precision in types else contextlib.nullcontext())
    scaler = torch.amp.GradScaler('cuda', enabled=args.precision == 'fp16')
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    first = args.steps // 3
    for step in range(args.steps):
        if step == first:
            wait()
            start = time.perf_counter()
        part = slice(step % 4 * args.batch, (step % 4 + 1) * args.batch)
        batch = images[part].to(args.device, non_blocking=True)
        wanted = labels[part].to(args.device, non_blocking=True)
        batch = batch.float().div_(255).sub_(0.5).div_(0.29)
        batch = batch.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad()
        with autocast:
            loss = nn.functional.cross_entropy(model(batch).float(), wanted)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    wait()
    print('%.0f' % ((args.steps - first) * args.batch / (time.perf_counter() - start)))
    if args.ddp:
        torch.distributed.destroy_process_group()


main()
