"""A function runs as the workers of a job, in new processes of this host: what a notebook trains by."""

import contextlib
import importlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _engine, _lib

_MOST_WORKERS = 1024

# A place that this process has by torchrun or psring run, or in a job of its own, is not its workers'.
_OF_THIS_PROCESS = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", *_engine.OF_A_DRIVER,
)  # fmt: skip

# A worker's program: -m psring._here_worker would look for all modules in the working folder first.
_BEGIN = "import sys; sys.path[0] == '' and sys.path.pop(0); from psring import _here_worker as w; w.main(*sys.argv[1:])"

# How long processes that have not failed may take to end after one that has.
_OTHERS_SECONDS = 10


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Dict[str, Any]] = None,
    *,
    num_proc: int,
    mode: Optional[str] = None,
    servers: Optional[int] = None,
    env: Optional[Dict[str, str]] = None,
) -> List[Any]:
    """Runs fn(*args, **kwargs) on `num_proc` new workers of this host; what each returned, by rank.

        results = psring.run(train, args=(0.1,), num_proc=2, mode="ps")

    `fn` calls psring.init() as any script does. This process takes no part in the job. A worker's output is this process's.

    Args:
        fn: any function, a lambda and one of a notebook's cell too: where cloudpickle is installed, it travels with what
            it refers to. Else workers import it from its module, which is not the script itself.
        num_proc: the number of workers.
        mode: "ring" or "ps"; default: as the function says, else the ring.
        servers: in mode ps, as in init().
        env: more variables of the workers.

    Raises PsringError with the exception of a worker that failed; all have ended then.
    """
    size = _engine.count("num_proc", num_proc, _MOST_WORKERS)
    return run_by(_pickle_of(fn), fn, args, kwargs, size, mode, servers, env=env)


def _pickle_of(fn: Callable[..., Any]) -> Any:
    """cloudpickle, or what can do without."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        pass
    name = getattr(fn, "__qualname__", "")
    if getattr(fn, "__module__", None) == "__main__" or "<" in name:
        raise ImportError(
            f"psring.run({name or fn!r}): workers cannot import a function of a notebook, of the script itself or within another "
            "function: pip install cloudpickle, or move it into a module"
        )
    return pickle


def run_by(
    pickle: Any,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Optional[Dict[str, Any]],
    size: int,
    mode: Optional[str] = None,
    servers: Optional[int] = None,
    servers_per_node: Optional[int] = None,
    env: Optional[Dict[str, str]] = None,
) -> List[Any]:
    """run() with a module that pickles."""
    call = pickle.dumps((function, *_engine.arguments(args, kwargs)))
    env = _engine.texts(env)
    variables = {
        "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // size)),
        **{name: value for name, value in os.environ.items() if name not in _OF_THIS_PROCESS},
        **env,
        **_engine.settings(mode, servers, servers_per_node),
        "PYTHONPATH": _search_path(env.get("PYTHONPATH")),
    }
    with contextlib.ExitStack() as taken:
        # Files without names, which end with the processes that hold them, however these end.
        file, board = (taken.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        file.write(call)
        file.flush()
        started = []
        for rank in range(size):
            outcome = taken.enter_context(tempfile.TemporaryFile())
            fds = [file.fileno(), board.fileno(), outcome.fileno()]
            argv = [sys.executable, "-c", _BEGIN, pickle.__name__, str(rank), str(os.getpid()), *map(str, fds)]
            place = _engine.place(rank, ["localhost"] * size)
            process = taken.enter_context(subprocess.Popen(argv, env={**variables, **place}, pass_fds=fds))
            taken.callback(process.kill)
            started.append(_Worker(process, outcome))
        _await_ends([worker.process for worker in started])
        failed = _culprit(started)
        if failed is not None:
            raise _lib.PsringError(f"worker {failed} of {size} {started[failed].ending()}")
        return [_engine.unpickled(pickle, worker.data(), worker.told()[1], rank, size) for rank, worker in enumerate(started)]


class _Worker:
    """A process, and the file to which it writes what becomes of its function."""

    def __init__(self, process: "subprocess.Popen[bytes]", outcome: IO[bytes]):
        self.process, self._outcome = process, outcome

    def told(self) -> Tuple[str, str]:
        """Once it has ended: "result" and its type, or "failed" or "by another"; "" where it had no time to tell."""
        self._outcome.seek(0)
        what, _, kind = self._outcome.readline().decode().rstrip("\n").partition(": ")
        return what, kind

    def data(self) -> bytes:
        """What follows that: the result, or the error's text."""
        self.told()
        return self._outcome.read()

    def has_failed(self) -> bool:
        """Also where it ended by os._exit(0), or its code is lost as this process ignores SIGCHLD."""
        code = self.process.poll()
        return code is not None and (code != 0 or self.told()[0] != "result")

    def ending(self) -> str:
        """How it has failed."""
        if self.told()[0] in ("failed", "by another"):  # also where a signal has ended it after that
            return "failed: " + self.data().decode(errors="replace")
        code = self.process.returncode
        if code < 0:
            try:
                return f"was ended by {signal.Signals(-code).name}"
            except ValueError:  # Python names the first and the last of real time only
                return f"was ended by signal {-code}"
        return f"ended with exit code {code}" + (": see its output" if code else " before its function returned")


def _search_path(wish: Optional[str]) -> str:
    """Where workers import from: there, and where this process does. Its import, too, passes over what is no text, as a
    pathlib.Path."""
    folders = [folder or os.curdir for folder in sys.path if isinstance(folder, str)]
    return os.pathsep.join([wish, *folders] if wish else folders)


def _await_ends(started: List["subprocess.Popen[bytes]"]) -> None:
    """After a failure not for long: psring has told those that had joined, the others would wait for the job."""
    end = float("inf")
    while time.monotonic() < end and any(process.poll() is None for process in started):
        if end == float("inf") and any(process.poll() for process in started):
            end = time.monotonic() + _OTHERS_SECONDS
        time.sleep(0.02)


def _culprit(started: List[_Worker]) -> Optional[int]:
    """The rank of one that failed, where there is one: by itself rather than because another did, of
    which it may have heard before that one had ended."""
    failed = [rank for rank, worker in enumerate(started) if worker.has_failed()]
    return min(failed, key=lambda rank: started[rank].told()[0] == "by another", default=None)
