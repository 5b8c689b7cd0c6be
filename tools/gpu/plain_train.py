"""The loop that people write without psring, on random images: torchvision's
resnet18 or resnet50, SGD, autocast. Prints the images a second of about --seconds,
after some steps before. Ends with 4 where the GPU has too little memory.

On stderr it says how long the processor took for each part of a step, which on a GPU is
longer than the step's work there where batches are small. Needs nothing but torch and
lab/bench/peers/. --over=ddp: in DistributedDataParallel over NCCL (Gloo
on the CPU), with one rank. --over=psring: with its optimizer; `psring run` starts it.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../lab/bench/peers'))
from resnet import resnet


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--model', required=True, choices=['resnet18', 'resnet50'])
    parser.add_argument('--shape', required=True)
    parser.add_argument('--batch', type=int, required=True)
    parser.add_argument('--seconds', type=float, required=True)
    parser.add_argument('--precision', required=True)
    parser.add_argument('--device', required=True)
    parser.add_argument('--over', choices=['nothing', 'ddp', 'psring'], default='nothing')
    args = parser.parse_args()
    channels, height, width = map(int, args.shape.split('x'))
    on_gpu = args.device == 'cuda'
    tf32 = args.precision != 'fp32'
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    model = resnet(args.model, channels, 1000).to(args.device, memory_format=torch.channels_last)
    if args.over == 'ddp':
        store = tempfile.NamedTemporaryFile()
        torch.distributed.init_process_group(
            'nccl' if on_gpu else 'gloo', init_method='file://' + store.name + '.store',
            rank=0, world_size=1)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = None
    if args.precision == 'fp16':
        scaler = torch.cuda.amp.GradScaler()
    if args.over == 'psring':
        import psring.torch as ps

        ps.init()
        optimizer = ps.DistributedOptimizer(optimizer, model=model, scaler=scaler)
    images = torch.randint(256, (4 * args.batch, channels, height, width),
                           dtype=torch.uint8)
    labels = torch.randint(1000, (4 * args.batch,))
    if on_gpu:
        images, labels = images.pin_memory(), labels.pin_memory()
    types = {'bf16': torch.bfloat16, 'fp16': torch.float16}
    autocast = (torch.autocast(args.device, types[args.precision])
                if args.precision in types else contextlib.nullcontext())
    wait = torch.cuda.synchronize if on_gpu else lambda: None

    parts = dict.fromkeys(('data', 'forward', 'backward', 'optimizer', 'wait'), 0.0)

    def train(steps):
        """Seconds that it took."""
        wait()
        moments = [time.perf_counter()]

        def ends(name):
            moments.append(time.perf_counter())
            parts[name] += moments[-1] - moments[-2]

        parts.update(dict.fromkeys(parts, 0.0))
        for step in range(steps):
            part = slice(step % 4 * args.batch, (step % 4 + 1) * args.batch)
            batch = images[part].to(args.device, non_blocking=True)
            wanted = labels[part].to(args.device, non_blocking=True)
            batch = batch.float().div_(255).sub_(0.5).div_(0.29)
            batch = batch.contiguous(memory_format=torch.channels_last)
            ends('data')
            optimizer.zero_grad()
            with autocast:
                loss = nn.functional.cross_entropy(model(batch).float(), wanted)
            ends('forward')
            (scaler.scale(loss) if scaler else loss).backward()
            ends('backward')
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            ends('optimizer')
        wait()
        ends('wait')
        return moments[-1] - moments[0]

    few = 3 if on_gpu else 1
    train(few)  # chooses algorithms
    steps = max(few, round(args.seconds * few / train(few)))
    print('%.0f' % (steps * args.batch / train(steps)))
    told = ', '.join('%s %.2f' % (name, 1e3 * seconds / steps) for name, seconds in parts.items())
    print('%s %s over %s: of the processor, ms a step: %s' % (args.model, args.batch, args.over, told), file=sys.stderr)
    if args.over == 'ddp':
        del model  # after its process group, it might never end
        torch.distributed.destroy_process_group()


try:
    main()
except torch.cuda.OutOfMemoryError as error:
    print(error, file=sys.stderr)
    sys.exit(4)
