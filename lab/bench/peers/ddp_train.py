"""Trains psring's lenet or mlp with DistributedDataParallel, over Gloo on CPUs
and over NCCL on GPUs, and times the steps as psring's worker does: batch, forward, backward, exchange,
update. Writes OUT/rank-RANK.json: {"rank", "seconds": of all timed steps,
"images": of this process in them}.
"""

import argparse
import datetime
import json
import os
import time


def make_model(torch, name):
    nn = torch.nn
    if name == 'lenet':  # worker/models/lenet.cc
        return nn.Sequential(
            nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(10, 20, 5), nn.Dropout2d(0.5), nn.MaxPool2d(2),
            nn.ReLU(), nn.Flatten(), nn.Linear(320, 50), nn.ReLU(),
            nn.Dropout(0.5), nn.Linear(50, 10))
    widths = [int(width) for width in name.removeprefix('mlp:').split('-')]
    layers = [nn.Flatten()]  # worker/models/mlp.cc
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layers += [nn.ReLU()] if i > 0 else []
        layers += [nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers)


def train(args, torch):
    torch.manual_seed(0)
    on_gpu = args.device == 'cuda'
    device = torch.device('cuda', args.rank) if on_gpu else torch.device('cpu')
    model = torch.nn.parallel.DistributedDataParallel(
        make_model(torch, args.model).to(device),
        device_ids=[args.rank] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    images = torch.rand(args.images, 1, 28, 28)
    labels = torch.randint(10, (args.images,))
    order = torch.randperm(args.images).repeat(
        (args.warmup + args.steps) * args.batch // args.images + 1)
    if on_gpu:
        images, labels = images.pin_memory(), labels.pin_memory()
    seconds = 0.0
    for step in range(args.warmup + args.steps):
        start = time.perf_counter()
        chosen = order[step * args.batch:(step + 1) * args.batch]
        optimizer.zero_grad()
        batch = images[chosen].to(device, non_blocking=True)
        wanted = labels[chosen].to(device, non_blocking=True)
        output = torch.log_softmax(model(batch), 1)
        loss = torch.nn.functional.nll_loss(output, wanted)
        loss.backward()
        optimizer.step()
        loss.item()
        if step >= args.warmup:
            seconds += time.perf_counter() - start
    return seconds


def main():
    parser = argparse.ArgumentParser()
    for name in ('rank', 'ranks', 'steps', 'warmup', 'batch', 'images'):
        parser.add_argument('--' + name, type=int, required=True)
    for name in ('model', 'out', 'store', 'interface', 'device'):
        parser.add_argument('--' + name, required=True)
    parser.add_argument('--lr', type=float, required=True)
    args = parser.parse_args()
    os.environ['GLOO_SOCKET_IFNAME'] = args.interface
    import torch
    torch.set_num_threads(1)
    if args.device == 'cuda':
        torch.cuda.set_device(args.rank)
    torch.distributed.init_process_group(
        'nccl' if args.device == 'cuda' else 'gloo', init_method='file://' + args.store, rank=args.rank,
        world_size=args.ranks, timeout=datetime.timedelta(minutes=2))
    seconds = train(args, torch)
    with open(f'{args.out}/rank-{args.rank}.json', 'w') as file:
        json.dump({'rank': args.rank, 'seconds': seconds,
                   'images': args.steps * args.batch}, file)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


main()
