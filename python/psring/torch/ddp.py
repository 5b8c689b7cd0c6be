"""mode="ddp": the gradients of a job travel over torch.distributed's Gloo.

So that a comparison can put PyTorch's own transport beside psring's: same script,
same hooks, same buckets of 25 MB, but torch.distributed.all_reduce for each.
Everything else of the job (ranks, failures, other collectives) stays psring's.
"""

import socket
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist

from .. import _job
from ..collectives import broadcast_object

_group: Any = None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def _connect() -> Any:
    """The group of all ranks: the script's own, or a new one."""
    global _group
    if _group is not None:
        return _group
    job = _job.current()
    if dist.is_initialized():
        _group = dist.new_group(backend="gloo")
        return _group
    host = "127.0.0.1" if job.local_size == job.size else job.address
    address = broadcast_object((host, _free_port()) if job.rank == 0 else None, name="ddp.address")
    store = dist.TCPStore(address[0], address[1], job.size, job.rank == 0, timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=job.rank, world_size=job.size)
    _group = dist.group.WORLD
    return _group


def _forget() -> None:
    global _group
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
        return dist.all_reduce(bucket, group=group, async_op=True).wait

    return start
