"""This process's place in its job: what it knows of it, and what else is done as it begins and ends.

_lifecycle.py joins and leaves.
"""

import os
from typing import Any, Callable, Dict, List, Optional

from . import _failure, _lib


class Job:
    """What a process knows of its job, fixed after construction, and has done in it."""

    def __init__(self, about: Dict[str, Any], mode: str, defaults: Dict[str, Any], asked: Dict[str, Any]):
        self.rank: int = about["rank"]
        self.size: int = about["size"]
        self.local_rank: int = about["local_rank"]
        self.local_size: int = about["local_size"]
        self.cross_rank: int = about["cross_rank"]
        self.cross_size: int = about["cross_size"]
        self.hosts: List[str] = about["hosts"]  # their names, by rank
        self.address: str = about["address"]  # of this process, numeric
        self.servers: int = about.get("servers", 0)
        # "ring", "ps" or "ddp"; a job in mode ddp is a ring to the library.
        self.mode = mode
        # sync, staleness, update, compress, bucket_mb, gpu; None where not given.
        self.defaults = defaults
        self.asked = asked  # what the library was asked for: init()'s options and the environment's
        self.step_timeout_s = 60.0  # the library's default
        self.pid = os.getpid()
        self.has_optimizer = False  # has had a DistributedOptimizer
        self.reductions = 0  # allreduces and reducescatters so far
        self.most_bytes = 0  # of one collective, as if its elements had 4 bytes

    def note_collective(self, size: int, reduces: bool = False) -> None:
        self.reductions += reduces
        self.most_bytes = max(self.most_bytes, size)


class Moment:
    """A moment in the life of a job. Called with a function, it makes that one of those that
    come() calls then, in this order."""

    def __init__(self) -> None:
        self._calls: List[Callable[[], object]] = []

    def __call__(self, call: Callable[[], object]) -> None:
        self._calls.append(call)

    def come(self) -> None:
        for call in self._calls:
            call()


# After this process has joined.
at_init = Moment()
# Before it says that it has no more data.
before_join = Moment()
# Before it says that it has done its part.
before_end = Moment()
# Before it leaves by shutdown().
at_shutdown = Moment()
# After that.
after_leaving = Moment()

_job: Optional[Job] = None
_forked = False


def begin(job: Job) -> None:
    global _job
    _job = job


def end() -> None:
    global _job
    _job = None


def end_in_fork() -> None:
    """In a child: the job stays the parent's."""
    global _forked
    _forked = _forked or _job is not None
    end()


def is_fork() -> bool:
    """Whether this is a child of a process that was a worker."""
    return _forked


def current() -> Job:
    """The job. Raises where there is none."""
    job = _job
    if job is not None:
        _failure.goes_on()
        return job
    if _forked:
        raise _lib.PsringError(
            "this process is a fork of a worker and not part of the job: "
            "call psring from the worker itself"
        )
    raise _lib.PsringError("psring has not been initialised: call psring.init() first")


def is_initialized() -> bool:
    return _job is not None


def rank() -> int:
    """This worker's number, 0 to size() - 1."""
    return current().rank


def size() -> int:
    """The number of workers."""
    return current().size


def local_rank() -> int:
    """This worker's number among those of its host."""
    return current().local_rank


def local_size() -> int:
    """The number of workers on this host."""
    return current().local_size


def cross_rank() -> int:
    """This host's number among those that have a worker of this local rank."""
    return current().cross_rank


def cross_size() -> int:
    """The number of hosts that have a worker of this local rank."""
    return current().cross_size


def mode() -> str:
    """"ring", "ps" or "ddp"."""
    return current().mode
