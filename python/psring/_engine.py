"""One worker's part where an engine (Spark, Ray) has started the process and calls a function in it."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import _channels, _failure, _lib, _lifecycle, _rendezvous

# How long processes that have not failed may take to end after one that has.
_OTHERS_SECONDS = 10


def settings(mode: Optional[str], servers: Optional[int], servers_per_node: Optional[int]) -> Dict[str, str]:
    """The topology that a driver wishes, as variables of its workers."""
    if mode not in (None, "ring", "ps"):
        raise ValueError(f'mode={mode!r}: it is "ring" or "ps"')
    if mode != "ps" and (servers is not None or servers_per_node is not None):
        raise ValueError(f'only mode="ps" has servers; the mode is {mode!r}')
    wishes = {"MODE": mode, "SERVERS": servers, "SERVERS_PER_NODE": servers_per_node}
    return {"PSRING_" + name: str(value) for name, value in wishes.items() if value is not None}


def place(rank: int, hosts: Sequence[str]) -> Dict[str, str]:
    """The variables of worker `rank`, where worker i is on hosts[i]."""
    nodes: List[str] = list(dict.fromkeys(hosts))
    return {
        "PSRING_RANK": str(rank), "PSRING_SIZE": str(len(hosts)),
        "PSRING_LOCAL_RANK": str(list(hosts[:rank]).count(hosts[rank])),
        "PSRING_NODE": str(nodes.index(hosts[rank])), "PSRING_NODES": str(len(nodes)),
    }  # fmt: skip


def call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Dict[str, Any],
    variables: Dict[str, str],
    channel: _rendezvous.Rendezvous,
) -> Any:
    """What `function` returns, which may call init(). Its exception ends the job for all, and is raised.

    The process's environment is its own again afterwards.
    """
    before = dict(os.environ)
    os.environ.pop("PSRING_COORDINATOR", None)
    os.environ.update(variables)
    _channels.use(channel)
    try:
        result = function(*args, **kwargs)
        _lifecycle.shutdown()
        return result
    except BaseException as error:
        _failure.let_culprit_end_first(error)
        _lifecycle.abandon(f"{type(error).__name__}: {error}")
        raise
    finally:
        _channels.use(None)
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


class _Folder(_rendezvous.Rendezvous):
    """A folder that only this user reads, of processes of one host."""

    carries_key = True

    def __init__(self, rank: int, folder: str):
        self.rank, self._folder, self._jobs = rank, folder, 0

    def _next(self) -> str:
        """The file of the next job: f may call init() again after shutdown()."""
        self._jobs += 1
        return os.path.join(self._folder, f"coordinator-{self._jobs}")

    def tell(self, text: str) -> None:
        path = self._next()
        with open(path + ".new", "w") as file:
            file.write(text)
        os.replace(path + ".new", path)

    def ask(self, seconds: float) -> str:
        path, end = self._next(), time.monotonic() + seconds
        while not os.path.exists(path):
            if time.monotonic() > end:
                raise TimeoutError(f"worker 0 has not called init() within {seconds:g} s")
            time.sleep(0.02)
        with open(path) as file:
            return file.read()


def run_here(
    pickle: Any,
    function: Callable[..., Any],
    kwargs: Dict[str, Any],
    size: int,
    mode: Optional[str] = None,
    servers: Optional[int] = None,
    servers_per_node: Optional[int] = None,
    env: Optional[Dict[str, str]] = None,
) -> List[Any]:
    """What `function` returns in `size` new processes of this host, by rank."""
    with tempfile.TemporaryDirectory(prefix="psring-") as folder, contextlib.ExitStack() as processes:
        with open(os.path.join(folder, "call"), "wb") as file:
            file.write(pickle.dumps((function, kwargs)))
        started = []
        for rank in range(size):
            variables = {**os.environ, **(env or {}), **settings(mode, servers, servers_per_node)}
            variables.update(place(rank, ["localhost"] * size), PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
            argv = [sys.executable, "-m", "psring._engine", pickle.__name__, folder, str(rank)]
            started.append(processes.enter_context(subprocess.Popen(argv, env=variables)))
            processes.callback(started[-1].kill)
        _await_ends(started)
        failed = _culprit(started, folder)
        if failed is not None:
            raise _lib.PsringError(f"worker {failed} of {size} {_ending(started[failed].returncode, folder, failed)}")
        results = []
        for rank in range(size):
            with open(os.path.join(folder, f"result-{rank}"), "rb") as file:
                results.append(pickle.loads(file.read()))
        return results


def _await_ends(started: List["subprocess.Popen[bytes]"]) -> None:
    """After a failure not for long: psring has told those that had joined, the others would wait for the job."""
    end = float("inf")
    while time.monotonic() < end and any(process.poll() is None for process in started):
        if end == float("inf") and any(process.poll() for process in started):
            end = time.monotonic() + _OTHERS_SECONDS
        time.sleep(0.02)


def _error(folder: str, rank: int) -> str:
    """What its function raised; "" where it has had no time to say."""
    try:
        with open(os.path.join(folder, f"error-{rank}")) as file:
            return file.read()
    except OSError:
        return ""


def _culprit(started: List["subprocess.Popen[bytes]"], folder: str) -> Optional[int]:
    """The rank of one that failed, where there is one: by itself rather than because another did, of
    which it may have heard before that one had ended."""
    failed = [rank for rank, process in enumerate(started) if process.poll()]
    of_others = _lib.JobFailedError.__name__
    return min(failed, key=lambda rank: _error(folder, rank).startswith(of_others), default=None)


def _ending(code: int, folder: str, rank: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    error = _error(folder, rank)
    return f"failed: {error}" if error else f"ended with exit code {code}: see its output"


def _main(pickle_name: str, folder: str, rank: str) -> None:
    """One of run_here's processes."""
    import importlib

    pickle = importlib.import_module(pickle_name)
    with open(os.path.join(folder, "call"), "rb") as file:
        function, kwargs = pickle.loads(file.read())
    try:
        result = call(function, (), kwargs, {}, _Folder(int(rank), folder))
    except Exception as error:
        with open(os.path.join(folder, f"error-{rank}"), "w", errors="backslashreplace") as file:
            file.write(f"{type(error).__name__}: {error}")
        raise
    with open(os.path.join(folder, f"result-{rank}"), "wb") as file:
        file.write(pickle.dumps(result))


if __name__ == "__main__":
    _main(*sys.argv[1:])
