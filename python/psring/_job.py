"""This process's place in the job: joining, leaving, and what it knows of it."""

import atexit
import json
import os
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from . import _failure, _lib

_MODES = ("ring", "ps", "ddp")
_SYNCS = ("bsp", "ssp", "async")
_JOIN_OPTIONS = (
    "own_servers", "shard_threads", "advertise", "interface", "same_host",
    "join_timeout_s", "step_timeout_s", "log_level", "metrics_dir",
)  # fmt: skip


class Job:
    """What a process knows of its job. Fixed after construction."""

    def __init__(self, about: Dict[str, Any], mode: str, defaults: Dict[str, Any]):
        self.rank: int = about["rank"]
        self.size: int = about["size"]
        self.local_rank: int = about["local_rank"]
        self.local_size: int = about["local_size"]
        self.cross_rank: int = about["cross_rank"]
        self.cross_size: int = about["cross_size"]
        self.hosts: List[str] = about.get("hosts", [])
        self.pids: List[int] = about.get("pids", [])
        self.servers: int = about.get("servers", 0)
        # "ring", "ps" or "ddp"; a job in mode ddp is a ring to the library.
        self.mode = mode
        # sync, staleness, update, compress, bucket_mb; None where not given.
        self.defaults = defaults
        self.pid = os.getpid()


_job: Optional[Job] = None
_forked = False
_lock = threading.Lock()
_at_shutdown: List[Callable[[], None]] = []
_at_init: List[Callable[[], None]] = []
_before_end: List[Callable[[], None]] = []


def parse_sync(sync: Optional[str], staleness: Optional[int]) -> Tuple[Optional[str], Optional[int]]:
    """("ssp:3", None) -> ("ssp", 3). Errors: another word, two bounds that differ."""
    if sync is None:
        return None, staleness
    word, _, bound = str(sync).partition(":")
    if word not in _SYNCS or (bound and word != "ssp"):
        raise ValueError(f'sync={sync!r}: it is "bsp", "ssp", "ssp:K" or "async"')
    if not bound:
        return word, staleness
    if not bound.isdigit():
        raise ValueError(f'sync={sync!r}: the K of "ssp:K" is a number of steps')
    if staleness is not None and staleness != int(bound):
        raise ValueError(f"sync={sync!r} and staleness={staleness} differ: give one of them")
    return word, int(bound)


def _defaults(**given: Any) -> Dict[str, Any]:
    """Settings of models that init() was given, else the environment's."""
    values = {
        key: value if value is not None else os.environ.get("PSRING_" + key.upper()) or None
        for key, value in given.items()
    }
    for key, kind in (("staleness", int), ("bucket_mb", float)):
        if values[key] is not None:
            try:
                values[key] = kind(values[key])
            except ValueError:
                raise ValueError(f"{key} (or PSRING_{key.upper()}) is {values[key]!r}: not a number") from None
    values["sync"], values["staleness"] = parse_sync(values["sync"], values["staleness"])
    if values["update"] not in (None, "local", "fused"):
        raise ValueError(f'update={values["update"]!r}: it is "local" or "fused"')
    return values


def _whole(variable: str) -> Optional[int]:
    """The environment's number, or None."""
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isdigit():
        raise ValueError(f"{variable}={text}: not a whole number")
    return int(text)


def _seconds(variable: str) -> Optional[float]:
    text = os.environ.get(variable)
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"{variable}={text}: not a number of seconds") from None


def _remedy_under_torchrun(error: str) -> str:
    """Where torchrun chose MASTER_PORT, nothing says that the next port is free."""
    chosen = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and not os.environ.get("PSRING_COORDINATOR")
    if not chosen or not ("cannot listen on" in error or "no coordinator has answered" in error):
        return ""
    return (
        "(Under torchrun psring's coordinator takes MASTER_PORT + 1 of the host of rank 0. If another "
        "process listens there, set PSRING_COORDINATOR=HOST:PORT for all workers: that host, and a free port of it)"
    )


def init(
    mode: Optional[str] = None,
    servers: Optional[int] = None,
    sync: Optional[str] = None,
    staleness: Optional[int] = None,
    *,
    update: Optional[str] = None,
    compress: Optional[str] = None,
    bucket_mb: Optional[float] = None,
    rank: Optional[int] = None,
    size: Optional[int] = None,
    coordinator: Optional[str] = None,
    process_sets: Union[None, str, List[Any]] = None,
    comm: Any = None,
    **options: Any,
) -> None:
    """Joins the job, and returns when all processes have.

    Every setting may also come from the environment (PSRING_MODE,
    PSRING_SERVERS, PSRING_SYNC ...) or, for the place in the job, from torchrun,
    mpirun or srun; an argument is stronger. Without any launcher it is a job of
    one process.

    Args:
        mode: "ring" (the default), "ps", or "ddp": torch.distributed's Gloo
            exchanges the gradients, to compare with.
        servers: in mode ps, the number of servers; each is a thread of a worker.
        sync: in mode ps, "bsp" (the default), "ssp:K" or "async".
        staleness: the K of ssp.
        update, compress, bucket_mb: defaults of DistributedOptimizer.
        rank, size, coordinator ("HOST:PORT"): this process's place, where no
            launcher gives it.
        process_sets: psring.ProcessSet objects to register.
        comm: Horovod's; must stay None. Use process_sets.
        options: of the job: advertise, interface, same_host, join_timeout_s,
            step_timeout_s, log_level, metrics_dir, shard_threads, own_servers.

    A second call does nothing. Errors name who is missing or who disagrees.
    """
    global _job
    if comm is not None or isinstance(mode, (list, tuple)):
        raise ValueError(
            "init(comm=...) is not supported: a job is all processes that were started; "
            "for groups among them use process_sets=[psring.ProcessSet([0, 1]), ...]"
        )
    if _forked:
        raise _lib.PsringError(
            "psring.init() in a child of a process that had called it: "
            'start such children with the "spawn" method'
        )
    with _lock:
        if _job is not None:
            return
        mode = mode or os.environ.get("PSRING_MODE") or None
        if mode is not None and mode not in _MODES:
            raise ValueError(f'mode={mode!r}: it is "ring", "ps" or "ddp"')
        defaults = _defaults(
            sync=sync, staleness=staleness, update=update, compress=compress, bucket_mb=bucket_mb
        )
        unknown = sorted(set(options) - set(_JOIN_OPTIONS))
        if unknown:
            raise TypeError(f"init() has no option {unknown[0]!r}; it has {', '.join(_JOIN_OPTIONS)}")
        request = {
            "mode": "ring" if mode == "ddp" else mode,
            "servers": servers if servers is not None else _whole("PSRING_SERVERS"),
            "rank": rank, "size": size, "coordinator": coordinator,
            "metrics_dir": os.environ.get("PSRING_METRICS_DIR") or None,
            "join_timeout_s": _seconds("PSRING_JOIN_TIMEOUT_S"), **options,
        }  # fmt: skip
        request = {key: value for key, value in request.items() if value is not None}
        library = _lib.library()
        operation = _lib.Operation(library.psring_join(json.dumps(request).encode()))
        try:
            operation.wait()
        except _lib.PsringError as error:
            remedy = "" if coordinator else _remedy_under_torchrun(str(error))
            if not remedy:
                raise
            raise type(error)(f"{error} {remedy}") from None
        finally:
            operation.release()
        about = json.loads(_lib.text(library.psring_job()))
        job = Job(about, "ddp" if mode == "ddp" else about["mode"], defaults)
        _failure.arm(leave)
        if job.mode != "ps" and defaults["sync"] not in (None, "bsp"):
            leave(f'sync="{defaults["sync"]}" needs mode="ps"; this job is in mode "{job.mode}"')
            raise ValueError(f'sync="{defaults["sync"]}" needs mode="ps"; the mode is "{job.mode}"')
        _job = job
    atexit.register(_at_exit)
    for call in _at_init:
        call()
    if process_sets is not None and not isinstance(process_sets, str):
        from .process_sets import add_process_set

        for process_set in process_sets:
            add_process_set(process_set)


def leave(error: str, seconds: Optional[float] = None) -> None:
    """Tells the job that this process has done its part (error "") or failed."""
    operation = _lib.Operation(_lib.library().psring_leave(error.encode()))
    try:
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            if end is None:
                operation.wait()
            if operation.poll():
                operation.wait()
                return
            time.sleep(0.02)
    finally:
        operation.release()


def shutdown() -> None:
    """Leaves the job, and returns when all processes have.

    Tensors that lay in the library's memory are the process's own afterwards. A
    process that ends calls this by itself.
    """
    global _job
    with _lock:
        if _job is None:
            return
        _say_end()
        for call in _at_shutdown:
            call()
        _job = None
        _failure.disarm()
        atexit.unregister(_at_exit)
        leave("")


def _say_end() -> None:
    from . import _metrics

    for call in _before_end:
        call()
    _metrics.write_end()
    _metrics.forget()


def _at_exit() -> None:
    """Ends the job with the process: well, or with the code it exits with."""
    global _job
    job = _job
    if job is None or job.pid != os.getpid() or _failure.told():
        return
    code = _failure.exit_code()
    try:
        if code:
            _job = None
            leave(f"the script ended with exit code {code}", seconds=5)
        else:
            _say_end()
            _job = None
            leave("")
    except (_lib.PsringError, KeyboardInterrupt) as error:
        if not code:
            _failure.end_process(error)


def _after_fork() -> None:
    """In a child: the job stays the parent's."""
    global _job, _forked, _lock
    _lock = threading.Lock()
    if not _lib.loaded():
        return
    if _job is not None:
        _forked = True
    _job = None
    _lib.library().psring_forked()
    _lib.forget_all()
    _failure.disarm()


os.register_at_fork(after_in_child=_after_fork)


def at_shutdown(call: Callable[[], None]) -> None:
    """Calls `call` before this process leaves by shutdown()."""
    _at_shutdown.append(call)


def at_init(call: Callable[[], None]) -> None:
    _at_init.append(call)


def before_end(call: Callable[[], None]) -> None:
    """Calls `call` before this process says that it has done its part."""
    _before_end.append(call)


def current() -> Job:
    """The job. Raises where there is none."""
    job = _job
    if job is not None:
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
