"""Runs scripts and functions on several ranks, each a process over the fake library.

A test that has the real library sets PSRING_LIBRARY; then the ranks use it.
"""

import contextlib
import faulthandler
import gc
import importlib.util
import multiprocessing
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

import psring
from forked_scripts import Script
from psring import _elastic

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Of the processes that tests start.
PYTHONPATH = os.pathsep.join([os.path.join(ROOT, "python"), os.path.join(HERE, "quick")])
# psring itself, built here or named.
PROGRAM = os.environ.get("PSRING_PROGRAM") or os.path.join(ROOT, "bazel-bin", "cli", "psring")


def _with_it(name):
    """Another program of the same build, or of the bundle that PROGRAM starts."""
    built = os.path.join(os.path.dirname(os.path.dirname(PROGRAM)), name, name)
    bundled = os.path.join(os.path.dirname(PROGRAM), "bin", name, name)
    return bundled if os.path.exists(bundled) else built


SERVER, WORKER = _with_it("ps"), _with_it("worker")


def free_port(count=1):
    """The first of so many neighbours (torchrun's, then the coordinator's), below those that the system
    gives to connections: none takes them before they are listened on."""
    while True:
        port = random.randrange(20000, 32000)
        with contextlib.ExitStack() as sockets:
            try:
                for neighbour in range(count):
                    sockets.enter_context(socket.socket()).bind(("127.0.0.1", port + neighbour))
            except OSError:
                continue
        return port


def _environment(rank, size, port, mode, env):
    return {
        "PSRING_RANK": str(rank), "PSRING_SIZE": str(size), "PSRING_LOCAL_RANK": str(rank), "PSRING_LOCAL_SIZE": str(size),
        "PSRING_COORDINATOR": f"127.0.0.1:{port}", "PSRING_MODE": mode, **(env or {}),
    }  # fmt: skip


def start(script, size, mode="ring", env=None, args=(), folder=None, fresh=False):
    """Starts `size` processes of a Python script, in that working folder; a list of Popen, by rank. A script of torch's is
    run where torch has been imported, unless it has to be in a `fresh` process."""
    port = free_port()
    path = os.pathsep.join([HERE, PYTHONPATH])
    with open(script) as file:
        forks = not fresh and "torch" in file.read()
    processes = []
    for rank in range(size):
        command = [os.path.join(HERE, "run_rank.py"), script, *args]
        environment = {
            **os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1",
            **_environment(rank, size, port, mode, env),
        }  # fmt: skip
        processes.append((Script if forks else _popen)(command, environment, folder or os.getcwd()))
    return processes


def _popen(command, environment, folder):
    return subprocess.Popen(
        [sys.executable, *command], env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # Where the tests run in the background, a shell has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def run_script(script, size, timeout=60, **more):
    """[(exit code, stdout, stderr)] by rank. One that takes longer is ended, and what it waits for is told."""
    processes = start(script, size, **more)
    results = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=timeout)
            results.append((process.returncode, out, err))
    except subprocess.TimeoutExpired as error:
        late = processes[len(results) :]
        for process in late:
            process.send_signal(signal.SIGABRT)  # the fault handler writes its stacks
        said = "".join("\n".join(process.communicate()) for process in late)
        raise AssertionError(f"rank {len(results)} took more than {timeout} s:\n{said}") from error
    finally:
        for process in processes:
            process.kill()
    return results


def models_in_memory():
    """How many models' memory this process shares with its host: the library's, of models that are not freed."""
    files = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum("memfd:psring" in os.readlink(file) for file in files if os.path.lexists(file))


def use_library():
    """The stand-in, unless a test has the real one."""
    if not os.environ.get("PSRING_LIBRARY"):
        from fake_psring import FakeLibrary

        psring._lib.use(FakeLibrary())


def _call(module, name, args, environment, path, timeout):
    """One rank of run(), in a process of its own: its result, or what it says, goes to a file."""
    gc.freeze()  # what has been imported: to look for cycles in it takes longer than most tests
    os.environ.update(environment)
    os.dup2(os.open(path + ".err", os.O_CREAT | os.O_WRONLY), 2)
    faulthandler.dump_traceback_later(timeout * 0.95, file=2)  # where it hangs, if it does
    use_library()
    try:
        result = getattr(importlib.import_module(module), name)(*args)
        psring.shutdown()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise SystemExit(1)
    with open(path, "wb") as file:
        pickle.dump(result, file)


def _forks():
    """Makes processes that have imported torch (where it is installed), and what its first
    optimizer imports: that takes longer than most tests."""
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    of_torch = ["psring.torch", "torch._dynamo"] if importlib.util.find_spec("torch") else []
    context.set_forkserver_preload(["pytest", "ranks", *of_torch])
    return context


def error_of_first_state(call):
    """What a call says that fails with an elastic state, in a process that has made none before."""
    _elastic._made.clear()
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def run(function, size=2, mode="ring", env=None, timeout=60, args=()):
    """What function(*args) of a test module returned, by rank."""
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        paths = [os.path.join(directory, str(rank)) for rank in range(size)]
        processes = []
        for rank, path in enumerate(paths):
            environment = _environment(rank, size, port, mode, env)
            call = (function.__module__, function.__name__, args, environment, path, timeout)
            processes.append(_FORKS.Process(target=_call, args=call))
            processes[-1].start()
        deadline = time.monotonic() + timeout
        for process in processes:
            process.join(max(0, deadline - time.monotonic()))
        codes = [process.exitcode for process in processes]
        for process in processes:
            process.kill()
            process.join()
        for rank, (code, path) in enumerate(zip(codes, paths)):
            if code != 0:
                with open(path + ".err") as file:
                    raise AssertionError(f"rank {rank} ended with {code}\n{file.read()}")
        results = []
        for path in paths:
            with open(path, "rb") as file:
                results.append(pickle.load(file))
        return results


_FORKS = _forks()
