"""Runs a function on several ranks, each a process over the fake library.

A test that has the real library sets PSRING_LIBRARY; then the ranks use it.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.abspath(os.path.join(HERE, "..", "..", "python"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(script, size, mode="ring", env=None, args=()):
    """Starts `size` processes of a Python script; a list of Popen, by rank."""
    port = free_port()
    processes = []
    for rank in range(size):
        environment = dict(
            os.environ,
            PYTHONPATH=os.pathsep.join([HERE, PACKAGE]),
            PSRING_RANK=str(rank), PSRING_SIZE=str(size), PSRING_LOCAL_RANK=str(rank), PSRING_LOCAL_SIZE=str(size),
            PSRING_COORDINATOR=f"127.0.0.1:{port}", PSRING_MODE=mode, OMP_NUM_THREADS="1",
        )  # fmt: skip
        environment.update(env or {})
        processes.append(
            subprocess.Popen(
                [sys.executable, os.path.join(HERE, "run_rank.py"), script, *args],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                # Where the tests run in the background, a shell has it ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip
        )
    return processes


def run_script(script, size, timeout=60, **more):
    """[(exit code, stdout, stderr)] by rank."""
    processes = start(script, size, **more)
    results = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=timeout)
            results.append((process.returncode, out, err))
    finally:
        for process in processes:
            process.kill()
    return results


def run(function, size=2, mode="ring", env=None, timeout=60):
    """What function() of a test module returned, by rank."""
    with tempfile.TemporaryDirectory() as directory:
        args = [function.__module__, function.__name__, directory]
        ranks = run_script("-function", size, timeout, mode=mode, env=env, args=args)
        for rank, (code, out, err) in enumerate(ranks):
            assert code == 0, f"rank {rank} ended with {code}\n{out}\n{err}"
        results = []
        for rank in range(size):
            with open(os.path.join(directory, str(rank)), "rb") as file:
                results.append(pickle.load(file))
        return results
