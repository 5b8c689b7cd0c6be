"""What psring costs and gains beside plain PyTorch, in turn on one machine; prints a table.

    python3 benchmark.py [import start alone mlp resnet18 memory] [--rounds=5]

import    seconds to import psring.torch where torch has been imported
start     4 workers: seconds from init() to the end of the first step, of the slowest one, and the
          same from init_process_group() with DistributedDataParallel over Gloo
alone     one process: time of a step of the mlp with psring over one without, step about
mlp       5.8 million parameters, 2 processes: time of a step with DistributedDataParallel over Gloo,
          in units of the ring's
resnet18  the same with a ResNet-18 on 32 x 32 images
memory    MiB of Adam's state in each of 2 workers (20 million parameters), update="local" and "fused":
          what they hold more than with SGD

Each round measures every variant once. Figures are medians over the rounds. For the least noise:
nice -n -10, and nothing else running. Needs an installed psring, or a clone that has been built.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIBRARY = os.path.join(ROOT, "bazel-bin", "python", "capi", "libpsring.so")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("parts", nargs="*", metavar="PART", help="all, if none is named")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=60, help="measured steps of the mlp; a fifth of them of ResNet-18")


# ---- What a measured process does --------------------------------------------


def measure_import():
    import torch  # noqa: F401

    begin = time.perf_counter()
    import psring.torch  # noqa: F401

    print(time.perf_counter() - begin)


def step(model, optimizer, data, target):
    import torch

    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(data), target).backward()
    optimizer.step()


def measure_start(over, folder):
    """From the moment when all processes have imported what they need."""
    import torch

    import psring.torch as ps

    model = torch.nn.Linear(100, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(8, 100), torch.randint(10, (8,))
    step(model, optimizer, *batch)  # torch's own first step imports a compiler
    open(os.path.join(folder, str(os.getpid())), "w").close()
    while len(os.listdir(folder)) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.001)
    begin = time.perf_counter()
    if over == "psring":
        ps.init()
        optimizer = ps.DistributedOptimizer(optimizer, model=model)
    else:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    step(model, optimizer, *batch)
    print(time.perf_counter() - begin)


def measure_alone(steps):
    """Step about in one process, so that the machine's moods hit both."""
    import torch
    from throughput import make_model

    import psring.torch as ps

    ps.init()
    times = ([], [])
    pairs = []
    for with_psring in (False, True):
        torch.manual_seed(0)
        model, shape = make_model("mlp")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        if with_psring:
            optimizer = ps.DistributedOptimizer(optimizer, model=model)
        pairs.append((model, optimizer))
    for _ in range(10 + steps):
        batch = torch.randn(64, *shape), torch.randint(10, (64,))
        for pair, of in zip(pairs, times):
            begin = time.perf_counter()
            step(*pair, *batch)
            of.append(time.perf_counter() - begin)
    plain, with_psring = (statistics.median(of[10:]) for of in times)
    print(with_psring / plain)


def measure_memory(update, kind):
    """This process's memory after some steps, and its share of what it shares with others."""
    import torch

    import psring.torch as ps

    ps.init()
    layers = [torch.nn.Linear(784, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 4096), torch.nn.Linear(4096, 10)]
    model = torch.nn.Sequential(*layers)
    optimizer = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[kind](model.parameters(), lr=1e-3)
    optimizer = ps.DistributedOptimizer(optimizer, model=model, update=update)
    for _ in range(3):
        step(model, optimizer, torch.randn(8, 784), torch.randint(10, (8,)))
    ps.barrier()
    with open("/proc/self/smaps_rollup") as file:
        print(next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:")))
    ps.barrier()


# ---- Starting them -----------------------------------------------------------


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(command, size=1, **variables):
    """The last word that each of `size` processes prints, as numbers, where one does."""
    port = free_port()
    processes = []
    for rank in range(size):
        env = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
        if os.path.exists(LIBRARY):
            env["PYTHONPATH"] = os.path.join(ROOT, "python")
            env.setdefault("PSRING_LIBRARY", LIBRARY)
        if size > 1:
            env.update(PSRING_RANK=str(rank), PSRING_SIZE=str(size), PSRING_COORDINATOR=f"127.0.0.1:{port}")
            env.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        processes.append(
            subprocess.Popen([sys.executable, *map(str, command)], cwd=HERE, env=env, stdout=subprocess.PIPE, text=True)
        )
    texts = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"{' '.join(map(str, command))}: a process failed")
    return [float(text.split()[-1]) for text in texts if text]


def worker(part, *args, size=1, **variables):
    call = f"import benchmark; benchmark.measure_{part}{args!r}"
    return run(["-c", call], size, **variables)


def throughput(model, over, steps, batch):
    command = ["throughput.py", f"--model={model}", f"--over={over}", f"--steps={steps}", f"--batch-size={batch}"]
    return run([*command, "--warm-up=3", "--bare"], 2)[0]


# ---- The table ---------------------------------------------------------------


def start_once(over):
    with tempfile.TemporaryDirectory() as folder:
        return max(worker("start", over, folder, size=4))


def against_ddp(model, steps, batch):
    """What a round measures: seconds of a step with the ring, and DDP's in units of it."""
    ring, ddp = (throughput(model, over, steps, batch) for over in ("psring", "ddp"))
    return {f"{model}: ms a step with the ring": ring, f"{model}: the same with DDP / ring": ddp / ring}


def state_bytes(update):
    adam, sgd = (statistics.mean(worker("memory", update, kind, size=2)) for kind in ("adam", "sgd"))
    return (adam - sgd) / (1 << 20)


ROUNDS = {
    "import": lambda steps: {"s to import psring.torch beside torch": worker("import")[0]},
    "start": lambda steps: {
        "s from init() to the first step's end, 4 workers": start_once("psring"),
        "the same with DDP": start_once("ddp"),
    },
    "alone": lambda steps: {"a step with psring / without, 1 process": worker("alone", steps)[0]},
    "mlp": lambda steps: against_ddp("mlp", steps, 64),
    "resnet18": lambda steps: against_ddp("resnet18", max(1, steps // 5), 16),
    "memory": lambda steps: {f'MiB of Adam\'s state in a worker, update="{u}"': state_bytes(u) for u in ("local", "fused")},
}  # fmt: skip


def main():
    args = parser.parse_args()
    unknown = [part for part in args.parts if part not in ROUNDS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}: {' '.join(ROUNDS)}")
    for part in args.parts or ROUNDS:
        results = {}
        for _ in range(args.rounds):
            for name, value in ROUNDS[part](args.steps).items():
                results.setdefault(name, []).append(value)
        for name, values in results.items():
            print(f"{statistics.median(values):8.3f}  {name}  ({min(values):.3f} to {max(values):.3f})", flush=True)


if __name__ == "__main__":
    main()
