"""This process's place in the job: joining, leaving, and what it knows of it."""

import atexit
import json
import os
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from . import _failure, _lib, _rendezvous, _stacks

_MODES = ("ring", "ps", "ddp")
_JOIN_SECONDS = 60.0
_JOIN_OPTIONS = (
    "servers_per_node", "own_servers", "shard_threads", "advertise", "interface", "same_host",
    "join_timeout_s", "step_timeout_s", "progress_timeout_s", "log_level", "metrics_dir",
    "page", "page_token_file", "tensorboard",
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
        # sync, staleness, update, compress, bucket_mb, gpu; None where not given.
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
    policies = _lib.policies()
    if word not in policies or (bound and not policies[word].bounded):
        forms = ", ".join(policy.form for policy in policies.values())
        raise ValueError(f"sync={sync!r}: it is one of {forms}")
    if not bound:
        return word, staleness
    if not bound.isdigit():
        raise ValueError(f'sync={sync!r}: the K of "{word}:K" is a number of steps')
    if staleness is not None and staleness != int(bound):
        raise ValueError(f"sync={sync!r} and staleness={staleness} differ: give one of them")
    return word, int(bound)


def takes_steps_together(sync: Optional[str]) -> bool:
    """Whether nobody is ahead of the others; None is the default."""
    return sync is None or _lib.policies()[sync].barrier


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
    if values["gpu"] not in (None, "auto", "nccl", "host", "off"):
        raise ValueError(f'gpu={values["gpu"]!r}: it is "auto", "nccl", "host" or "off"')
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


def _servers(servers: Optional[int], options: Dict[str, Any]) -> Dict[str, Any]:
    """How many servers there are and whether they live here: as the script says, else the environment."""
    own = os.environ.get("PSRING_OWN_SERVERS")
    if own not in (None, "", "0", "1"):
        raise ValueError(f"PSRING_OWN_SERVERS={own}: not 0 or 1")
    by_script = servers is not None or "servers_per_node" in options
    return {
        "servers": servers if by_script else _whole("PSRING_SERVERS"),
        "servers_per_node": None if by_script else _whole("PSRING_SERVERS_PER_NODE"),
        "own_servers": own != "0" if own else None,
    }


def _seconds(variable: str) -> Optional[float]:
    text = os.environ.get(variable)
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"{variable}={text}: not a number of seconds") from None


def _join(request: Dict[str, Any]) -> None:
    """Returns when all processes have joined."""
    meeting = _rendezvous.find(request)
    if meeting is not None:
        request = {**request, **meeting.place}
    if meeting is None:
        _finish(_start_join(request))
    elif meeting.rank == 0:
        _join_and_tell(request, meeting)
    else:
        told = meeting.ask(request.get("join_timeout_s", _JOIN_SECONDS))
        if not told.startswith("at "):
            raise _lib.PsringError(f"worker 0 could not start the job: {told}")
        address, _, key = told[3:].partition(" ")
        _finish(_start_join({**request, "coordinator": address}, key))


def _start_join(request: Dict[str, Any], key: str = "") -> _lib.Operation:
    with _rendezvous.handed_down(key):
        return _lib.Operation(_lib.library().psring_join(json.dumps(request).encode()))


def _finish(operation: _lib.Operation) -> None:
    try:
        operation.wait()
    finally:
        operation.release()


def _join_and_tell(request: Dict[str, Any], meeting: _rendezvous.Rendezvous) -> None:
    """Rank 0's part: the others learn where its coordinator listens, or why it does not."""
    key = _rendezvous.new_key(meeting)
    try:
        operation = _start_join({**request, "coordinator": f"{meeting.host}:0"}, key)
        try:
            while not (address := _lib.text(_lib.library().psring_coordinator())):
                if operation.poll(milliseconds=10):
                    operation.wait()
        except BaseException:
            operation.release()
            raise
    except BaseException as error:
        meeting.tell(f"{type(error).__name__}: {error}")
        raise
    meeting.tell(f"at {address} {key}".strip())
    _finish(operation)


def init(
    mode: Optional[str] = None,
    servers: Optional[int] = None,
    sync: Optional[str] = None,
    staleness: Optional[int] = None,
    *,
    update: Optional[str] = None,
    compress: Optional[str] = None,
    bucket_mb: Optional[float] = None,
    gpu: Optional[str] = None,
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
        gpu: where gradients on GPUs are exchanged, by a library with CUDA: "auto"
            (from GPU memory; in the ring NCCL sums where every rank has it), "nccl"
            (or an error), "host" (from GPU memory, but the hosts sum), "off" (PyTorch
            copies them to the host).
        rank, size, coordinator ("HOST:PORT"): this process's place, where no
            launcher gives it.
        process_sets: psring.ProcessSet objects to register.
        comm: Horovod's; must stay None. Use process_sets.
        options: of the job: servers_per_node (in place of servers: as many on
            every host, in its first worker; under launchers that know hosts),
            advertise, interface, same_host, join_timeout_s,
            step_timeout_s, progress_timeout_s, log_level, metrics_dir,
            shard_threads, own_servers (False: they are started by hand),
            page ("HOST:PORT": rank 0 shows the job there, see docs/monitoring.md),
            page_token_file, tensorboard (a folder for what rank 0 logs,
            for TensorBoard).

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
            sync=sync, staleness=staleness, update=update, compress=compress, bucket_mb=bucket_mb, gpu=gpu
        )
        unknown = sorted(set(options) - set(_JOIN_OPTIONS))
        if unknown:
            raise TypeError(f"init() has no option {unknown[0]!r}; it has {', '.join(_JOIN_OPTIONS)}")
        request = {
            "mode": "ring" if mode == "ddp" else mode,
            **_servers(servers, options),
            "rank": rank, "size": size, "coordinator": coordinator,
            "metrics_dir": os.environ.get("PSRING_METRICS_DIR") or None,
            "tensorboard": os.environ.get("PSRING_TENSORBOARD") or None,
            "page": os.environ.get("PSRING_PAGE") or None,
            "page_token_file": os.environ.get("PSRING_PAGE_TOKEN_FILE") or None,
            "join_timeout_s": _seconds("PSRING_JOIN_TIMEOUT_S"), **options,
        }  # fmt: skip
        request = {key: value for key, value in request.items() if value is not None}
        _stacks.answer_signal()
        _join(request)
        about = json.loads(_lib.text(_lib.library().psring_job()))
        job = Job(about, "ddp" if mode == "ddp" else about["mode"], defaults)
        _failure.arm(leave, job.rank)
        if job.mode != "ps" and not takes_steps_together(defaults["sync"]):
            leave(f'sync="{defaults["sync"]}" needs mode="ps"; this job is in mode "{job.mode}"')
            raise ValueError(f'sync="{defaults["sync"]}" needs mode="ps"; the mode is "{job.mode}"')
        required = os.environ.get("PSRING_REQUIRE_ENCRYPTION") == "1"
        if job.mode == "ddp" and required and job.local_size < job.size:
            reason = (
                'mode="ddp" over several hosts: torch.distributed encrypts nothing, '
                "but PSRING_REQUIRE_ENCRYPTION=1"
            )
            leave(reason)
            raise ValueError(reason)
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


def abandon(error: str) -> None:
    """Leaves the job, which fails with `error` for all, and the process lives on."""
    global _job
    with _lock:
        if _job is None:
            return
        for call in _at_shutdown:
            call()
        _job = None
        _failure.disarm()
        atexit.unregister(_at_exit)
        try:
            leave(error, seconds=5)
        except _lib.PsringError:
            pass  # it has failed already


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
