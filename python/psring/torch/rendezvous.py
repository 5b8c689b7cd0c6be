"""Where torch.distributed's ranks meet that torchrun has not started, but `psring run`, srun or mpirun.

init_process_group() without an init_method wants torchrun's variables. Where some are missing, and psring
knows this process's place, the group's ranks are those of psring's job, and rank 0 tells the others through
the job where torch's store is.
"""

import importlib
import os
import socket
from datetime import timedelta
from typing import Any, Callable, Dict, Iterator, Tuple
from urllib.parse import parse_qs, urlparse

import torch.distributed as dist

from .. import _job, _lifecycle
from ..collectives import broadcast_json

def _handlers() -> Dict[str, Callable[..., Any]]:
    """torch's own dictionary, by scheme: register_rendezvous_handler() takes no scheme that is there."""
    return getattr(importlib.import_module("torch.distributed.rendezvous"), "_rendezvous_handlers", {})


_env_of_torch: Any = None
_HERE = ("PSRING_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")  # what init() finds its place by, without torchrun


def seconds(timeout: timedelta) -> float:
    """As a step timeout, within what the library takes: a second to a day."""
    return min(max(timeout.total_seconds(), 1.0), 86400.0)


def own_address() -> str:
    """At which the job's other ranks reach this one."""
    job = _job.current()
    return "127.0.0.1" if job.local_size == job.size else job.address


def _open_store(host: str, size: int, timeout: timedelta) -> Any:
    """Rank 0's store. It listens on `host` alone where torch takes a listener, else on all interfaces."""
    known = dist.TCPStore.__init__.__doc__ or ""
    port = 0
    more: Dict[str, Any] = {}
    if "master_listen_fd" in known:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.bind((host, 0))
            listener.listen(size)
            port, more["master_listen_fd"] = listener.getsockname()[1], listener.detach()
        if "use_libuv" in known:
            more["use_libuv"] = False  # until torch 2.8, its server over libuv takes no listener
    return dist.TCPStore(host, port, size, True, timeout, wait_for_workers=False, **more)


def shared_store(name: str, timeout: timedelta) -> Any:
    """torch's store of the whole job, at rank 0, whose place is broadcast under `name`. Collective."""
    job = _job.current()
    store = _open_store(own_address(), job.size, timeout) if job.rank == 0 else None
    host, port = broadcast_json((own_address(), store.port) if store else None, name=name)
    return store or dist.TCPStore(host, port, job.size, False, timeout)


def _is_for_psring(query: Dict[str, Any]) -> bool:
    """Whether torch lacks a variable, and psring none."""
    has_place = all(os.environ.get(name.upper()) or name in query for name in ("rank", "world_size"))
    has_address = os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT")
    if has_place and has_address:
        return False
    return _job.is_initialized() or any(os.environ.get(name) for name in _HERE)


def _meet(url: str, timeout: timedelta = timedelta(minutes=30), **more: Any) -> Iterator[Tuple[Any, int, int]]:
    """torch's handler of env://, and ours."""
    query = parse_qs(urlparse(url).query)
    if not _is_for_psring(query):
        yield from _env_of_torch(url, timeout=timeout, **more)
        return
    if not _job.is_initialized():
        _lifecycle.init(step_timeout_s=seconds(timeout))
    job = _job.current()
    for name, is_here in (("rank", job.rank), ("world_size", job.size)):
        if int(query.get(name, [is_here])[0]) != is_here:
            raise ValueError(f"init_process_group({name}={query[name][0]}), where psring's job has {name} {is_here}: leave it out")
    yield shared_store("torch.distributed.store", timeout), job.rank, job.size
    raise RuntimeError("a process group does not meet again")


def install() -> None:
    """Once in a process."""
    global _env_of_torch
    handlers = _handlers()
    _env_of_torch = handlers.get("env")
    if _env_of_torch is not None:
        handlers["env"] = _meet


__all__ = ["install", "own_address", "seconds", "shared_store"]
