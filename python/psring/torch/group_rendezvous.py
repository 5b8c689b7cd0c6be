"""Where torch.distributed's ranks meet that torchrun has not started, but `psring run`, srun or mpirun.

init_process_group() without an init_method wants torchrun's variables. Where some are missing, and psring
knows this process's place, the group's ranks are those of psring's job, and rank 0 tells the others through
the job where torch's store is.
"""

import contextlib
import fcntl
import importlib
import os
import socket
import struct
from datetime import timedelta
from typing import Any, Dict, Iterator, Tuple
from urllib.parse import parse_qs, urlparse

import torch.distributed as dist

from .. import _job, _lifecycle
from ..collectives import broadcast_json

_env_of_torch: Any = None  # torch's handler
# What init() finds its place by, besides a task of srun and torchrun's variables (common/cluster/environment.cc).
_PLACES = ("PSRING_RANK", "PSRING_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_FIRST_SPECIAL_STEP = 4294967290  # Slurm's number for what is no step of srun's: a shell, a batch script

_GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR = 0x8915  # of Linux


def step_timeout_s(timeout: timedelta) -> float:
    """A group's timeout, within what the library takes: a second to a day."""
    return min(max(timeout.total_seconds(), 1.0), 86400.0)


def _own_address() -> str:
    """At which the job's other ranks reach this one."""
    job = _job.current()
    return "127.0.0.1" if job.local_size == job.size else job.address


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
def gloo_listens_here() -> Iterator[None]:
    """Gloo listens where the job does: by itself it takes the address of the host's name. What the user has set stays."""
    name = "" if _GLOO_INTERFACE in os.environ else _interface(_own_address())
    if name:
        os.environ[_GLOO_INTERFACE] = name
    try:
        yield
    finally:
        if name:
            del os.environ[_GLOO_INTERFACE]


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
    store = _open_store(_own_address(), job.size, timeout) if job.rank == 0 else None
    host, port = broadcast_json((_own_address(), store.port) if store is not None else None, name=name)
    return dist.TCPStore(host, port, job.size, False, timeout) if store is None else store


def _is_slurm_task() -> bool:
    step = os.environ.get("SLURM_STEP_ID") or os.environ.get("SLURM_STEPID") or ""
    return step.isdigit() and int(step) < _FIRST_SPECIAL_STEP


def _is_for_psring(query: Dict[str, Any]) -> bool:
    """Whether torch lacks a variable, and psring none; or its variables are those of who has started psring run."""
    if os.environ.get("PSRING_COORDINATOR_HOSTED") == "1" and "rank" not in query:
        return "TORCHELASTIC_RUN_ID" not in os.environ  # else a worker has started torchrun
    has_place = all(os.environ.get(name.upper()) or name in query for name in ("rank", "world_size"))
    has_address = os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT")
    if has_place and has_address:
        return False
    return _job.is_initialized() or _is_slurm_task() or any(os.environ.get(name) for name in _PLACES)


def _meet(url: str, timeout: timedelta = timedelta(minutes=30), **more: Any) -> Iterator[Tuple[Any, int, int]]:
    """torch's handler of env://, and ours."""
    query = parse_qs(urlparse(url).query)
    if not _is_for_psring(query):
        yield from _env_of_torch(url, timeout=timeout, **more)
        return
    if not _job.is_initialized():
        _lifecycle.init(step_timeout_s=step_timeout_s(timeout))
    job = _job.current()
    if _lifecycle.refuses_plaintext(job):
        raise ValueError(
            "init_process_group() over several hosts: torch's store and Gloo encrypt nothing, but PSRING_REQUIRE_ENCRYPTION=1"
        )
    for name, is_here in (("rank", job.rank), ("world_size", job.size)):
        if int(query.get(name, [is_here])[0]) not in (-1, is_here):  # -1: torch does not know yet
            raise ValueError(f"init_process_group({name}={query[name][0]}), where psring's job has {name} {is_here}: leave it out")
    with gloo_listens_here():  # until init_process_group() has made the group
        yield shared_store("torch.distributed.store", timeout), job.rank, job.size
    raise RuntimeError("a process group does not meet again")


def install() -> None:
    """Once in a process."""
    global _env_of_torch
    # torch's own, by scheme: register_rendezvous_handler() takes no scheme that is there.
    handlers = getattr(importlib.import_module("torch.distributed.rendezvous"), "_rendezvous_handlers", {})
    _env_of_torch = handlers.get("env")
    if _env_of_torch is not None:
        handlers["env"] = _meet


__all__ = ["gloo_listens_here", "install", "shared_store", "step_timeout_s"]
