"""What psring costs and gains beside plain PyTorch, in turn on one machine; prints a table.

    python3 benchmark.py [import start alone mlp resnet18 memory page] [--rounds=5]

import    seconds to import psring.torch where torch has been imported
start     4 workers: seconds from init() to the end of the first step, of the slowest one, and the
          same from init_process_group() with DistributedDataParallel over Gloo
alone     one process: time of a step of the mlp with psring over one without, step about
mlp       5.8 million parameters, 2 processes: time of a step with DistributedDataParallel over Gloo,
          in units of the ring's
resnet18  the same with a ResNet-18 on 32 x 32 images
memory    MiB of Adam's state in each of 2 workers (20 million parameters), update="local" and "fused":
          what they hold more than with SGD
page      64 workers (--workers) under `psring run`, which train a linear model with numpy and log loss
          and accuracy at every step, for 10 s (--seconds): with a page that is read as by a browser
          and scraped every 5 s as by Prometheus, and without. Time of a step with over without, and
          what the page costs the coordinator's process in CPU time, of which noise is less; no torch

Each round measures every variant once; the two jobs of page change their order from round to round.
Figures are medians over the rounds, with the lowest and the highest. For the least noise: nice -n -10,
and nothing else running. Needs an installed psring, or a clone that has been built.
"""

import argparse
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIBRARY = os.path.join(ROOT, "bazel-bin", "python", "capi", "libpsring.so")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("parts", nargs="*", metavar="PART", help="all, if none is named")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=60, help="measured steps of the mlp; a fifth of them of ResNet-18")
parser.add_argument("--workers", type=int, default=64, help="of the jobs of the part page")
parser.add_argument("--seconds", type=float, default=10, help="measured seconds of each of these jobs")


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


def flat(address, size):
    """An array over the memory of a model."""
    import ctypes

    import numpy as np

    return np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))


def measure_page(warm_up, seconds):
    """A worker of a job: steps of a linear model, all ranks' gradients exchanged by the ring.

    Rank 0 says when the measured steps begin and end, and how long one took. Then all wait to be
    ended, so that they can be asked for their CPU time.
    """
    import numpy as np

    import psring
    from psring import _models

    psring.init()
    # What psring.torch's optimizer stands on, as bare collectives would leave the page without steps.
    shapes = [("weight", (256, 32)), ("over", (1,))]
    model = _models.Model("linear", shapes, _models.model_options("local", None, None, "none", 25))
    gradients, means = (flat(at, model.num_elements) for at in (model.gradients_address, model.parameters_address))
    places = [slice(place["begin"], place["begin"] + place["size"]) for place in model.layout]
    random = np.random.default_rng(psring.rank())
    x = random.standard_normal((512, 256), dtype=np.float32)
    target = x @ np.random.default_rng(1000).standard_normal((256, 32), dtype=np.float32)
    weight = np.zeros((256, 32), np.float32)
    model.begin_at()
    end, begin, steps, over = time.perf_counter() + warm_up, None, 0, False
    while not over:
        now = time.perf_counter()
        if psring.rank() == 0 and now > end and begin is None:
            print("begin", flush=True)
            begin, end, steps = now, now + seconds, 0
        error = x @ weight - target
        gradients[places[0]] = (x.T @ error / len(x)).ravel()
        # All end at the step at which rank 0 has no more time.
        gradients[places[1]] = begin is not None and now > end
        for bucket in range(model.num_buckets):
            model.submit(bucket)
        model.finish()
        weight -= 0.1 * means[places[0]].reshape(weight.shape)
        psring.log(loss=float((error**2).mean()), accuracy=float((abs(error) < 0.5).mean()))
        over = means[places[1]][0] > 0
        steps += 1
    if psring.rank() == 0:
        print(f"end {(time.perf_counter() - begin) / steps}", flush=True)
    time.sleep(60)


# ---- Starting them -----------------------------------------------------------


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def environment():
    """Of a measured process: one thread for its computation, and a clone's package and library."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if os.path.exists(LIBRARY):
        env["PYTHONPATH"] = os.path.join(ROOT, "python")
        env.setdefault("PSRING_LIBRARY", LIBRARY)
    return env


def run(command, size=1, **variables):
    """The last word that each of `size` processes prints, as numbers, where one does."""
    port = free_port()
    processes = []
    for rank in range(size):
        env = {**environment(), **variables}
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


# ---- A job with a page or without --------------------------------------------


class Readers:
    """Read a page as a browser and a Prometheus do, in threads of this process."""

    SCRAPE_INTERVAL = 5

    def __init__(self, url):
        self.base, self.token = re.match(r"(http://.*)/\?token=(\w+)$", url).groups()
        self.events, self.scrapes, self.workers, self.stop = 0, 0, 0, threading.Event()
        self.threads = [threading.Thread(target=each) for each in (self.read_events, self.scrape)]
        for thread in self.threads:
            thread.start()

    def open(self, path):
        request = urllib.request.Request(self.base + path, headers={"Authorization": "Bearer " + self.token})
        return urllib.request.urlopen(request, timeout=20)

    def read_events(self):
        with self.open("/events") as answer:
            for line in answer:
                self.events += line.startswith(b"data:")
                if self.stop.is_set():
                    return

    def scrape(self):
        while True:
            with self.open("/metrics") as answer:
                self.workers = len(re.findall(rb'^psring_up{role="worker".* 1$', answer.read(), re.M))
            self.scrapes += 1
            if self.stop.wait(self.SCRAPE_INTERVAL):
                return

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


def cpu_seconds(pid):
    """Of all threads that a process has and had, to the nanosecond: the clock of clock_getcpuclockid(3)."""
    return time.clock_gettime((~pid << 3) | 2)


def children(pid):
    tasks = f"/proc/{pid}/task"
    return [int(child) for task in os.listdir(tasks) for child in open(f"{tasks}/{task}/children").read().split()]


def run_job(page, workers, seconds):
    """What `psring run` of measure_page() took: a step, and the CPU time of its processes."""
    built = os.path.join(ROOT, "bazel-bin", "cli", "psring")
    program = built if os.path.exists(built) else shutil.which("psring")
    if not program:
        sys.exit("page: there is no psring on the PATH; install it, or build the clone: ./psring build")
    env = {name: value for name, value in environment().items() if not name.startswith("PSRING_PAGE")}
    flags = ["--threads-per-worker=1", *(["--page"] if page else [])]
    call = f"import benchmark; benchmark.measure_page{min(3, seconds), seconds}"
    command = [program, "run", "-n", str(workers), *flags, "--", sys.executable, "-c", call]
    job = subprocess.Popen(command, cwd=HERE, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        return follow_job(job, page, workers)
    finally:
        job.terminate()
        job.communicate()


def follow_job(job, page, workers):
    said, url, readers, used = "", "", None, []
    for line in job.stdout:
        said += line
        found = re.search(r"the job's page: (\S+)|\b(begin)$|\bend (\S+)$", line.rstrip())
        if found and found.group(1):
            url = found.group(1)
        elif found:
            ranks = children(job.pid)
            used.append([time.perf_counter(), cpu_seconds(job.pid), sum(map(cpu_seconds, ranks))])
            if found.group(3):
                break
            if page:
                readers = Readers(url)
    else:
        sys.exit(f"page: the job with {workers} workers failed: {said}")
    if readers:
        readers.end()
    wall, coordinator, cpu = (after - before for before, after in zip(*used))
    if len(ranks) != workers:
        sys.exit(f"page: the job has {len(ranks)} processes, not {workers}")
    if readers and (readers.events < wall / 2 or readers.workers != workers):
        sys.exit(f"page: {readers.events} events in {wall} s, and {readers.workers} workers in /metrics, not {workers}")
    step = float(found.group(3))
    return {
        "step": step, "cpu of a step": cpu / wall * step,
        "coordinator": coordinator / wall, "all": (coordinator + cpu) / wall,
    }  # fmt: skip


def page_cost(workers, seconds, turn):
    """What a round measures: a job with a page and one without."""
    jobs = {page: run_job(page, workers, seconds) for page in ((False, True) if turn % 2 == 0 else (True, False))}
    without, with_page = jobs[False], jobs[True]
    more = with_page["coordinator"] - without["coordinator"]
    return {
        f"ms a step without a page, {workers} workers": 1000 * without["step"],
        "a step with a page that is read and scraped / without": with_page["step"] / without["step"],
        "CPU time of a step in all workers: with the page / without": with_page["cpu of a step"] / without["cpu of a step"],
        "ms of CPU a second in the coordinator's process without a page": 1000 * without["coordinator"],
        "ms of CPU a second more with the page": 1000 * more,
        "the same in % of a step, if nobody could work meanwhile": 100 * more,
        "the same in % of the CPU time of all of the job's processes": 100 * more / without["all"],
    }


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
    "import": lambda args, turn: {"s to import psring.torch beside torch": worker("import")[0]},
    "start": lambda args, turn: {
        "s from init() to the first step's end, 4 workers": start_once("psring"),
        "the same with DDP": start_once("ddp"),
    },
    "alone": lambda args, turn: {"a step with psring / without, 1 process": worker("alone", args.steps)[0]},
    "mlp": lambda args, turn: against_ddp("mlp", args.steps, 64),
    "resnet18": lambda args, turn: against_ddp("resnet18", max(1, args.steps // 5), 16),
    "memory": lambda args, turn: {f'MiB of Adam\'s state in a worker, update="{u}"': state_bytes(u) for u in ("local", "fused")},
    "page": lambda args, turn: page_cost(args.workers, args.seconds, turn),
}  # fmt: skip


def main():
    args = parser.parse_args()
    unknown = [part for part in args.parts if part not in ROUNDS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}: {' '.join(ROUNDS)}")
    for part in args.parts or ROUNDS:
        results = {}
        for turn in range(args.rounds):
            for name, value in ROUNDS[part](args, turn).items():
                results.setdefault(name, []).append(value)
        for name, values in results.items():
            print(f"{statistics.median(values):8.3f}  {name}  ({min(values):.3f} to {max(values):.3f})", flush=True)


if __name__ == "__main__":
    main()
