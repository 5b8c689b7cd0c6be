"""Joining the job and leaving it."""

import atexit
import json
import os
import threading
import time
from typing import Any, Dict, List, Optional, Union

from . import _channels, _failure, _job, _lib, _metrics, _rendezvous, _settings, _stacks
from .process_sets import ProcessSet, add_process_set

_MODES = ("ring", "ps", "ddp")
_JOIN_SECONDS = 60.0
_JOIN_OPTIONS = (
    "servers_per_node", "own_servers", "shard_threads", "advertise", "interface", "ports", "same_host",
    "join_timeout_s", "heartbeat_timeout_s", "step_timeout_s", "progress_timeout_s", "log_level", "metrics_dir",
    "page", "page_token_file", "tensorboard",
)  # fmt: skip

_lock = threading.RLock()  # a signal's handler may call shutdown() while the main thread holds it


def _join(request: Dict[str, Any]) -> None:
    """Returns when all processes have joined."""
    meeting = _channels.find(request)
    if meeting is not None:
        request = {**request, **meeting.place}
    if meeting is None:
        _finish(_start_join(request))
    elif meeting.rank == 0:
        _join_and_tell(request, meeting)
    else:
        told = meeting.ask(request.get("join_timeout_s", _JOIN_SECONDS))
        address, key = _rendezvous.read(told, meeting)
        _finish(_start_join({**request, "coordinator": address}, key))


def _start_join(request: Dict[str, Any], key: str = "") -> _lib.Operation:
    for option, value in request.items():
        if isinstance(value, str) and _lib.encoded(value).decode() != value:
            raise ValueError(f"{option}={value!r} is not UTF-8: choose another name")
    with _rendezvous.handed_down(key):
        try:
            return _lib.Operation(_lib.library().psring_join(json.dumps(request).encode()))
        except _lib.InvalidArgumentError as error:
            _failure.wrong_arguments(error)
            raise


def _finish(operation: _lib.Operation) -> None:
    try:
        operation.wait()
    finally:
        operation.release()


def _join_and_tell(request: Dict[str, Any], meeting: _rendezvous.Rendezvous) -> None:
    """Rank 0's part: the others learn where its coordinator listens, or why it does not."""
    key = _rendezvous.new_key(meeting)
    chosen = request.get("advertise") or request.get("interface")
    host = meeting.host if chosen else _rendezvous.address_for_others(meeting.host)
    if ":" in host:  # of IPv6
        host = f"[{host}]"
    try:
        operation = _start_join({**request, "coordinator": f"{host}:0"}, key)
        try:
            while not (address := _lib.text(_lib.library().psring_coordinator())):
                if operation.poll(milliseconds=10):
                    operation.wait()
        except BaseException:
            operation.release()
            raise
    except BaseException as error:
        meeting.tell(_lib.encoded(_failure.described(error)).decode())
        raise
    try:
        meeting.tell(f"at {address} {key}".strip())
        _finish(operation)
    finally:
        meeting.close()


@_failure.checks_arguments
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
            advertise, interface, ports ("41000-41099": on which this process
            listens for the others), same_host, join_timeout_s, heartbeat_timeout_s,
            step_timeout_s, progress_timeout_s, log_level, metrics_dir,
            shard_threads, own_servers (False: they are started by hand),
            page ("HOST:PORT": rank 0 shows the job there, see docs/monitoring.md),
            page_token_file, tensorboard (a folder for what rank 0 logs,
            for TensorBoard).

    A second call does nothing, or raises where it asks for another job. Other errors name who is missing or who
    disagrees.
    """
    if comm is not None or isinstance(mode, (list, tuple)):
        raise ValueError(
            "init(comm=...) is not supported: a job is all processes that were started; "
            "for groups among them use process_sets=[psring.ProcessSet([0, 1]), ...]"
        )
    unknown = sorted(set(options) - set(_JOIN_OPTIONS))
    if unknown:
        raise TypeError(f"init() has no option {unknown[0]!r}; it has {', '.join(_JOIN_OPTIONS)}")
    sets = _process_sets(process_sets)
    settings = {
        "sync": sync, "staleness": staleness, "update": update, "compress": compress, "bucket_mb": bucket_mb, "gpu": gpu,
    }  # fmt: skip
    asked = {"mode": mode, "servers": servers, **settings, "rank": rank, "size": size, "coordinator": coordinator, **options}
    if _job.is_fork():
        raise _lib.PsringError(
            "psring.init() in a child of a process that had called it: "
            'start such children with the "spawn" method'
        )
    with _lock:
        if _job.is_initialized():
            _check_same_job(asked)
            for process_set in sets:
                add_process_set(process_set)
            return
        if rank is None and size is None and coordinator is None:
            _check_not_of_a_worker()
        chosen = os.environ.get("PSRING_MODE") or None
        for choice in (mode, chosen):
            if choice is not None and choice not in _MODES:
                raise ValueError(f'mode={choice!r}: it is "ring", "ps" or "ddp"')
        if mode is not None and chosen not in (None, mode) and os.environ.get("PSRING_COORDINATOR_HOSTED") == "1":
            raise ValueError(
                f'init(mode="{mode}"): the job of this process is in mode "{chosen}", which whoever started it has '
                f"chosen: leave mode= out, and start it by psring run --mode={mode}"
            )
        mode = mode or chosen
        defaults = _settings.defaults(**settings)
        request = {
            "mode": "ring" if mode == "ddp" else mode,
            **_settings.servers_of(servers, options),
            "rank": rank, "size": size, "coordinator": coordinator,
            "metrics_dir": os.environ.get("PSRING_METRICS_DIR") or None,
            "tensorboard": os.environ.get("PSRING_TENSORBOARD") or None,
            "page": os.environ.get("PSRING_PAGE") or None,
            "page_token_file": os.environ.get("PSRING_PAGE_TOKEN_FILE") or None,
            "interface": os.environ.get("PSRING_INTERFACE") or None,
            "advertise": os.environ.get("PSRING_ADVERTISE") or None,
            "ports": os.environ.get("PSRING_PORTS") or None,
            "join_timeout_s": _settings.seconds("PSRING_JOIN_TIMEOUT_S"),
            "heartbeat_timeout_s": _settings.seconds("PSRING_HEARTBEAT_TIMEOUT_S"), **options,
        }  # fmt: skip
        request = _settings.plain(request)
        request["hang_signal"] = _stacks.answer_signals()
        _join(request)
        _metrics.joined(request.get("metrics_dir"))
        about = json.loads(_lib.text(_lib.library().psring_job()))
        job = _job.Job(about, "ddp" if mode == "ddp" else about["mode"], defaults, request)
        job.step_timeout_s = float(request.get("step_timeout_s", job.step_timeout_s))
        _failure.arm(leave, job.rank)
        os.environ[_JOINED] = f"{os.getpid()} {_place_by_variables()}"
        if job.mode != "ps" and not _settings.takes_steps_together(defaults["sync"]):
            why = f'sync="{defaults["sync"]}" (or PSRING_SYNC) needs mode="ps"; this job is in mode "{job.mode}"'
            leave(why)
            raise ValueError(why)
        if job.mode == "ddp" and refuses_plaintext(job):
            reason = (
                'mode="ddp" over several hosts: torch.distributed encrypts nothing, '
                "but PSRING_REQUIRE_ENCRYPTION=1"
            )
            leave(reason)
            raise ValueError(reason)
        _job.begin(job)
    atexit.register(_at_exit)
    _job.at_init.come()
    for process_set in sets:
        add_process_set(process_set)


def _check_same_job(asked: Dict[str, Any]) -> None:
    """Raises where another call of init() asks for what the job is not."""
    job = _job.current()
    settings = _settings.defaults(**{name: asked[name] for name in job.defaults})
    asked.update({name: settings[name] for name in job.defaults if asked[name] is not None})
    if asked["sync"] is not None:
        asked["staleness"] = settings["staleness"]
    known = {"coordinator": os.environ.get("PSRING_COORDINATOR"), **job.asked, **job.defaults}
    has = {**_settings.DEFAULTS, "join_timeout_s": _JOIN_SECONDS, **{name: value for name, value in known.items() if value is not None}}
    has.update(mode=job.mode, rank=job.rank, size=job.size, step_timeout_s=job.step_timeout_s)
    if job.servers:
        has["servers"] = job.servers
    for name, value in _settings.plain(asked).items():
        if value != has.get(name):
            raise ValueError(
                f"init({name}={value!r}): this process has joined its job already, with {name}={has.get(name)!r}; give "
                "it to the first init(), or leave it out"
            )


def _process_sets(process_sets: Union[None, str, List[Any]]) -> List[ProcessSet]:
    """init()'s, before it joins: Horovod has "dynamic" as well, which asks for none."""
    if process_sets is None or isinstance(process_sets, str):
        return []
    if not isinstance(process_sets, (list, tuple)):
        raise TypeError(f"process_sets={process_sets!r}: it is a list of psring.ProcessSet")
    return [each if isinstance(each, ProcessSet) else ProcessSet(each) for each in process_sets]


def refuses_plaintext(job: _job.Job) -> bool:
    """Whether the job may not be one of torch.distributed's, which encrypts nothing between hosts."""
    return os.environ.get("PSRING_REQUIRE_ENCRYPTION") == "1" and job.local_size < job.size


_JOINED = "PSRING_JOINED"  # whose process has joined the job, and its place by the variables of then
_RANKS = ("PSRING_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_JOBS = ("PSRING_COORDINATOR", "MASTER_PORT", "OMPI_MCA_ess_base_jobid", "SLURM_STEP_ID")


def _place_by_variables() -> str:
    return " ".join(os.environ.get(name, "") for name in _JOBS + _RANKS)


_job.after_leaving(lambda: os.environ.pop(_JOINED, None))


def _check_not_of_a_worker() -> None:
    """Raises where a worker has started this process, which would join in its place."""
    pid, _, place = os.environ.get(_JOINED, "").partition(" ")
    has_rank = any(os.environ.get(name) for name in _RANKS)
    if pid not in ("", str(os.getpid())) and place == _place_by_variables() and has_rank:
        raise _lib.PsringError(
            f"psring.init() in a process that a worker (pid {pid}) has started, which has joined the job already: call "
            'init() under `if __name__ == "__main__":`, as spawned processes import the script again, or start another '
            "job by psring run"
        )


def leave(error: str, seconds: Optional[float] = None) -> None:
    """Tells the job that this process has done its part (error "") or failed."""
    operation = _lib.Operation(_lib.library().psring_leave(_lib.encoded(error)))
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
    with _lock:
        if not _job.is_initialized():
            return
        _say_end()
        _job.at_shutdown.come()
        _job.end()
        _failure.disarm()
        atexit.unregister(_at_exit)
        try:
            leave("")
        finally:
            _job.after_leaving.come()


def abandon(error: str) -> None:
    """Leaves the job, which fails with `error` for all, and the process lives on."""
    with _lock:
        if not _job.is_initialized():
            return
        _job.at_shutdown.come()
        _job.end()
        _failure.disarm()
        atexit.unregister(_at_exit)
        try:
            leave(error, seconds=5)
        except _lib.PsringError:
            pass  # it has failed already
        finally:
            _job.after_leaving.come()


def _say_end() -> None:
    _job.before_end.come()
    _metrics.write_end()
    _metrics.forget()


def _at_exit() -> None:
    """Ends the job with the process: well, or with the code it exits with."""
    if not _job.is_initialized() or _job.current().pid != os.getpid() or _failure.told():
        return
    code = _failure.exit_code()
    try:
        if code:
            _job.end()
            how = f"with exit code {int(code)}" if isinstance(code, int) else f"by sys.exit({str(code)!r})"
            _failure.let_culprit_end_first()
            leave(f"the script ended {how}", seconds=5)
        else:
            _say_end()
            _job.end()
            leave("")
    except (_lib.PsringError, KeyboardInterrupt) as error:
        if not code:
            _failure.end_process(error)


def _after_fork() -> None:
    """In a child: the job stays the parent's."""
    global _lock
    _lock = threading.RLock()
    if not _lib.loaded():
        return
    _job.end_in_fork()
    _lib.library().psring_forked()
    _lib.forget_all()
    _failure.disarm()


os.register_at_fork(after_in_child=_after_fork)
