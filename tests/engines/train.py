"""A small training that ends with the same weights wherever it runs.

Each rank's batch of a step depends on the step and the rank alone. Rank 0 saves after every
step and, at the end, writes the weights' digest and the accuracy; a job that finds a
checkpoint goes on from there. `meet` is for tests: at its step every rank says in a file of
its own that it is there, and waits until the test lets it go on.
"""

import argparse
import ctypes
import hashlib
import json
import os
import signal
import time

import numpy as np

import psring
from psring import _job, _models

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 60


def batch(step, rank):
    random = np.random.default_rng(step * 1000 + rank)
    x = random.standard_normal((32, 8), dtype=np.float32)
    return x, (x.sum(axis=1) > 0).astype(np.float32)


def flat(address, size):
    return np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))


def probability(parameters, x):
    return 1 / (1 + np.exp(-(x @ parameters[:8] + parameters[8])))


def put(path, text):
    """The file appears whole."""
    with open(f"{path}.{os.getpid()}", "w") as file:
        file.write(text)
    os.replace(f"{path}.{os.getpid()}", path)


def meet(folder, step, seconds=120):
    """Says that this rank has come to `step`, and waits for the file `go`."""
    put(os.path.join(folder, f"at-{step}.{psring.rank()}"), str(os.getpid()))
    end = time.monotonic() + seconds
    # All go on together, when any has seen the file: who saw it alone would leave the others waiting
    # in this call. A call of the job, so that a failure is noticed meanwhile.
    while not psring.sum(int(os.path.exists(os.path.join(folder, "go")))):
        if time.monotonic() > end:
            raise TimeoutError(f"nobody let rank {psring.rank()} go on from step {step}")
        time.sleep(0.1)


def train(folder, meet_at=0, fail_at=0, preemption=None):
    """The result, the same on all ranks, or None where SIGTERM has ended the training; `fail_at`: rank 1
    raises there unless the job has been resumed."""
    model = _models.Model("logistic", [("weight", (8,)), ("bias", (1,))], _models.model_options("local", None, None, "none", 25))
    gradients = flat(model.gradients_address, model.num_elements)
    means = flat(model.parameters_address, model.num_elements)
    parameters, momentum, first = np.zeros(9, np.float32), np.zeros(9, np.float32), 0
    checkpoint = os.path.join(folder, "checkpoint.npz")
    if os.path.exists(checkpoint):
        saved = np.load(checkpoint)
        parameters, momentum, first = saved["parameters"], saved["momentum"], int(saved["step"])
    model.begin_at()
    for step in range(first, STEPS):
        if step == meet_at and meet_at and first == 0:
            meet(folder, step)
        if step == fail_at and fail_at and first == 0 and psring.rank() == 1:
            raise ValueError(f"no batch {step}")
        x, y = batch(step, psring.rank())
        error = probability(parameters, x) - y
        places = [(place["begin"], place["size"]) for place in model.layout]
        for (begin, size), gradient in zip(places, (x.T @ error / len(y), error.mean(keepdims=True))):
            gradients[begin : begin + size] = gradient
        for bucket in range(model.num_buckets):
            model.submit(bucket)
        model.finish()
        mean = np.concatenate([means[begin : begin + size] for begin, size in places])
        momentum = np.float32(0.9) * momentum + mean
        parameters = parameters - np.float32(0.5) * momentum
        if psring.rank() == 0:
            np.savez(checkpoint + ".new.npz", parameters=parameters, momentum=momentum, step=step + 1)
            os.replace(checkpoint + ".new.npz", checkpoint)
        if preemption is not None and preemption.requested():
            return None
    model.close()
    x, y = batch(STEPS, 999)
    result = {
        "weights": hashlib.sha256(parameters.tobytes()).hexdigest(),
        "accuracy": float(((probability(parameters, x) > 0.5) == y).mean()),
        "resumed_at": first, "size": psring.size(), "mode": psring.mode(),
        "servers": _job.current().servers, "hosts": _job.current().hosts,
    }  # fmt: skip
    if psring.rank() == 0:
        put(os.path.join(folder, "result.json"), json.dumps(result))
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--meet-at", type=int, default=0)
    parser.add_argument("--fail-at", type=int, default=0)
    parser.add_argument("--stop-on-sigterm", action="store_true")
    parser.add_argument("--kill-first-start-of", metavar="RANK", help="torchrun's first process of this rank is killed before init()")
    arguments = parser.parse_args()
    start = os.environ.get("RANK"), os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if start == (arguments.kill_first_start_of, "0"):
        os.kill(os.getpid(), signal.SIGKILL)
    psring.init()
    preemption = psring.Preemption() if arguments.stop_on_sigterm else None
    train(arguments.folder, arguments.meet_at, arguments.fail_at, preemption)
