"""One of the workers that _here.py starts."""

import ctypes
import importlib
import os
import signal
import sys
import time

from . import _engine, _failure, _rendezvous

_PR_SET_PDEATHSIG = 1  # of Linux


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


def _end_with(parent: int) -> None:
    """Where the process that has started this one is killed, nobody waits for it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def main(pickle_name: str, folder: str, rank: str, parent: str) -> None:
    _end_with(int(parent))
    del sys.argv[1:]  # a parser of the function's would take them for its own
    pickle = importlib.import_module(pickle_name)
    try:
        with open(os.path.join(folder, "call"), "rb") as file:
            function, args, kwargs = pickle.loads(file.read())
        result = _engine.call(function, args, kwargs, {}, _Folder(int(rank), folder))
        kind, data = _engine.kind_of(result), pickle.dumps(result)
    except (Exception, SystemExit) as error:
        if _failure.by_another(error):
            open(os.path.join(folder, f"by-another-{rank}"), "w").close()
        with open(os.path.join(folder, f"error-{rank}"), "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(_failure.described(error))
        if isinstance(error, SystemExit):
            sys.exit(1)  # also where it was sys.exit(0): there is no result
        raise
    with open(os.path.join(folder, f"result-{rank}"), "wb") as file:
        file.write(kind.encode(errors="backslashreplace") + b"\n")
        file.write(data)
