"""Trains psring's lenet, mlp, resnet18 or resnet50 with DistributedDataParallel, over Gloo on CPUs
and over NCCL on GPUs, and times the steps as psring's worker does: batch, forward, backward, exchange,
update. As there, the pixels lie on the GPU, and the processor does not wait for the GPU in a step.
Writes OUT/rank-RANK.json: {"rank", "seconds": of all timed steps, "images": of this process in them,
"peak_memory_bytes": of its GPU, or resident}.
"""

import argparse
import contextlib
import datetime
import json
import os
import resource
import time


def make_model(torch, name, channels, classes):
    nn = torch.nn
    if name.startswith('resnet'):
        from resnet import resnet
        return resnet(name, channels, classes)
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
    shape = [int(size) for size in args.shape.split('x')]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision != 'fp32'
    torch.backends.cudnn.benchmark = True
    layout = torch.contiguous_format if args.precision == 'fp32' else torch.channels_last
    model = torch.nn.parallel.DistributedDataParallel(
        make_model(torch, args.model, shape[0], args.classes).to(device, memory_format=layout),
        device_ids=[args.rank] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    types = {'bf16': torch.bfloat16, 'fp16': torch.float16}
    autocast = (torch.autocast(args.device, types[args.precision])
                if args.precision in types else contextlib.nullcontext())
    scaler = torch.amp.GradScaler('cuda', enabled=args.precision == 'fp16')
    samples = max(args.batch, 1024)
    images = (torch.randint(256, (samples, *shape), dtype=torch.uint8, device=device) if on_gpu
              else torch.rand(samples, *shape))
    labels = torch.randint(args.classes, (samples,), device=device)
    order = torch.randperm(samples, device=device).repeat(
        (args.warmup + args.steps) * args.batch // samples + 1)

    def now():
        if on_gpu:
            torch.cuda.synchronize(device)
        return time.perf_counter()

    losses = []
    start = now()
    for step in range(args.warmup + args.steps):
        if step == args.warmup:
            start = now()
        chosen = order[step * args.batch:(step + 1) * args.batch]
        optimizer.zero_grad()
        batch = images.index_select(0, chosen)
        if on_gpu:
            batch = batch.float().div_(255)
        batch = batch.contiguous(memory_format=layout)
        with autocast:
            output = model(batch)
        loss = torch.nn.functional.cross_entropy(output.float(), labels.index_select(0, chosen))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    seconds = now() - start
    if not torch.stack(losses).isfinite().all():
        raise SystemExit('a loss is no number: training has diverged')
    return seconds


def main():
    parser = argparse.ArgumentParser()
    for name in ('rank', 'ranks', 'steps', 'warmup', 'batch', 'classes'):
        parser.add_argument('--' + name, type=int, required=True)
    for name in ('model', 'out', 'store', 'interface', 'device', 'shape', 'precision'):
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
    memory = (torch.cuda.max_memory_reserved() if args.device == 'cuda'
              else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    with open(f'{args.out}/rank-{args.rank}.json', 'w') as file:
        json.dump({'rank': args.rank, 'seconds': seconds, 'images': args.steps * args.batch,
                   'peak_memory_bytes': memory}, file)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


main()
