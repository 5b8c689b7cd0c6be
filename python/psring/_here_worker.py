"""One of the workers that _here.py starts."""

import ctypes
import importlib
import json
import mmap
import os
import signal
import sys
import time
from typing import Union

from . import _engine, _failure, _rendezvous

_PR_SET_PDEATHSIG = 1  # of Linux


class _Board(_rendezvous.Rendezvous):
    """A file of this host's that only the workers have, with a line for each job: f may call init() again after
    shutdown()."""

    carries_key = True

    def __init__(self, rank: int, fd: int):
        self.rank, self._fd, self._jobs = rank, fd, 0

    def tell(self, text: str) -> None:
        with os.fdopen(os.dup(self._fd), "ab") as file:
            file.write(json.dumps(text).encode() + b"\n")

    def ask(self, seconds: float) -> str:
        self._jobs, end = self._jobs + 1, time.monotonic() + seconds
        # The others read at the same time, with the same position in the file.
        while len(lines := os.pread(self._fd, os.fstat(self._fd).st_size, 0).split(b"\n")) <= self._jobs:
            if time.monotonic() > end:
                raise TimeoutError(f"worker 0 has not called init() within {seconds:g} s")
            time.sleep(0.02)
        return str(json.loads(lines[self._jobs - 1]))


def _end_with(parent: int) -> None:
    """Where the process that has started this one is killed, nobody waits for it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _tell(outcome: int, what: str, kind: str, data: Union[str, bytes]) -> None:
    """What _here._Worker reads."""
    with os.fdopen(outcome, "wb") as file:
        file.write(f"{what}: {kind}\n".encode(errors="backslashreplace"))
        file.write(data.encode(errors="backslashreplace") if isinstance(data, str) else data)


def main(pickle_name: str, rank: str, parent: str, *fds: str) -> None:
    _end_with(int(parent))
    del sys.argv[1:]  # a parser of the function's would take them for its own
    pickle = importlib.import_module(pickle_name)
    call, board, outcome = map(int, fds)
    for fd in (call, board, outcome):
        os.set_inheritable(fd, False)
    try:
        with mmap.mmap(call, 0, access=mmap.ACCESS_READ) as pickled:
            function, args, kwargs = pickle.loads(pickled)
        os.close(call)
        result = _engine.call(function, args, kwargs, {}, _Board(int(rank), board))
        kind, data = _engine.kind_of(result), pickle.dumps(result)
    except (Exception, SystemExit) as error:
        _tell(outcome, "by another" if _failure.by_another(error) else "failed", "", _failure.described(error))
        if isinstance(error, SystemExit):
            sys.exit(1)  # also where it was sys.exit(0): there is no result
        raise
    _tell(outcome, "result", kind, data)
