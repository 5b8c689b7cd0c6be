"""mode="ddp": the gradients of a job travel over torch.distributed's Gloo.

So that a comparison can put PyTorch's own transport beside psring's: same script,
same hooks, same buckets of 25 MB, but torch.distributed.all_reduce for each.
Everything else of the job (ranks, failures, other collectives) stays psring's.
"""

import contextlib
import fcntl
import os
import socket
import struct
import threading
from datetime import timedelta
from typing import Any, Callable, Iterator

import torch
import torch.distributed as dist

from .. import _failure, _job, _lib
from .rendezvous import own_address, shared_store

_TIMEOUT = timedelta(seconds=60)
_GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR = 0x8915  # of Linux

# Of a process that learns of its job's failure, until it has ended by itself.
_PATIENCE_SECONDS = 3.0

_group: Any = None
_ended = threading.Event()


def _interface(address: str) -> str:
    """The name of the interface with this IPv4 address, "" where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue  # it has no such address
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return ""


@contextlib.contextmanager
def _gloo_listens_at(address: str) -> Iterator[None]:
    """Else Gloo listens at the address of the host's name. What the user has set stays."""
    name = "" if _GLOO_INTERFACE in os.environ else _interface(address)
    if name:
        os.environ[_GLOO_INTERFACE] = name
    try:
        yield
    finally:
        if name:
            del os.environ[_GLOO_INTERFACE]


def _connect() -> Any:
    """The group of all ranks: the script's own, or a new one."""
    global _group
    if _group is not None:
        return _group
    job = _job.current()
    _end_with_the_job()
    if dist.is_initialized():
        _group = dist.new_group(backend="gloo")
        return _group
    store = shared_store("ddp.address", _TIMEOUT)
    with _gloo_listens_at(own_address()):
        dist.init_process_group("gloo", store=store, rank=job.rank, world_size=job.size)
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
        return dist.all_reduce(bucket, group=group, async_op=True).wait

    return start
