"""mode="ddp": the gradients of a job travel over torch.distributed's Gloo.

So that a comparison can put PyTorch's own transport beside psring's: same script,
same hooks, same buckets of 25 MB, but torch.distributed.all_reduce for each.
Everything else of the job (ranks, failures, other collectives) stays psring's.
"""

import threading
import time
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist

from .. import _failure, _job, _lib
from .group_rendezvous import gloo_listens_here, shared_store

_TIMEOUT = timedelta(seconds=60)

# Of a process that learns of its job's failure, until it has ended by itself.
_PATIENCE_SECONDS = 3.0

# psring names a lost rank some seconds after Gloo has missed it: it waits 5 s for one to come back.
_NAMED_WITHIN_SECONDS = 7.0

_group: Any = None
_ended = threading.Event()


def _connect() -> Any:
    """The group of all ranks: the script's own, or a new one."""
    global _group
    if _group is not None:
        return _group
    job = _job.current()
    _end_with_the_job()
    timeout = timedelta(seconds=job.step_timeout_s)  # Gloo's own is 30 minutes
    if dist.is_initialized():
        _group = dist.new_group(backend="gloo", timeout=timeout)
        return _group
    store = shared_store("ddp.address", _TIMEOUT)
    with gloo_listens_here():
        dist.init_process_group("gloo", store=store, rank=job.rank, world_size=job.size, timeout=timeout)
    _group = dist.group.WORLD
    return _group


def _end_with_the_job() -> None:
    """Gloo waits on for a peer that is stopped, or whose host is gone: a thread ends the process a little
    after the job has failed, if it has not ended by then."""
    global _ended
    _ended = ended = threading.Event()

    def watch() -> None:
        while not ended.wait(1.0):
            if _lib.failure():
                if not ended.wait(_PATIENCE_SECONDS) and not _failure.told():
                    _failure.end_process(_lib.JobFailedError(_lib.failure()))
                return

    threading.Thread(target=watch, name="psring ddp", daemon=True).start()


def _forget() -> None:
    global _group
    _ended.set()
    if _group is not None and dist.is_initialized():
        dist.destroy_process_group()
    _group = None


_job.at_shutdown(_forget)


def start_gloo() -> Callable[[torch.Tensor, int], Callable[[], Any]]:
    """What starts the mean of a bucket, for BucketExchange. Blocks until all ranks
    are connected."""
    group, size = _connect(), _job.size()

    def start(bucket: torch.Tensor, _: int) -> Callable[[], Any]:
        bucket.div_(size)  # as DDP's reducer does, before the sum
        work = dist.all_reduce(bucket, group=group, async_op=True)

        def wait() -> None:
            try:
                work.wait()
            except RuntimeError as error:
                raise _reason(error) from error

        return wait

    return start


def _reason(error: RuntimeError) -> Exception:
    """What a failed exchange raises: Gloo does not name who is lost, but psring, some seconds later."""
    end = time.monotonic() + _NAMED_WITHIN_SECONDS
    while not _lib.failure() and time.monotonic() < end:
        time.sleep(0.05)
    if _lib.failure():
        return _lib.JobFailedError(_lib.failure())
    return _lib.PsringError(
        f'mode="ddp": Gloo has not exchanged a step\'s gradients: {error}. All ranks make as many steps, and each within '
        f"step_timeout_s ({_job.current().step_timeout_s:g}) of the others: give each as many batches, as DistributedSampler "
        "does, or increase it where a rank evaluates or saves for longer"
    )
