"""psring: training on several processes, by parameter servers or by a ring.

`import psring.torch as ps` is what a PyTorch script needs. This package itself
imports no framework.
"""

from ._here import run
from ._job import cross_rank, cross_size, is_initialized, local_rank, local_size, mode, rank, size
from ._lib import InvalidArgumentError, JobFailedError, PsringError
from ._lifecycle import init, shutdown
from .collectives import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather_bytes,
    allgather_object,
    allreduce_,
    allreduce_async_,
    barrier,
    broadcast_,
    broadcast_bytes,
    broadcast_object,
    join,
    mean,
    sum,
)
from ._metrics import log, log_to
from ._preemption import Preemption
from .process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__version__ = "0.2.0"

# What import * takes, and what type checkers let a script use.
__all__ = [
    "Adasum", "add_process_set", "allgather_bytes", "allgather_object", "allreduce_", "allreduce_async_",
    "Average", "barrier", "broadcast_", "broadcast_bytes", "broadcast_object", "cross_rank", "cross_size",
    "global_process_set", "init", "InvalidArgumentError", "is_initialized", "JobFailedError", "join",
    "local_rank", "local_size", "log", "log_to", "Max", "mean", "Min", "mode", "Preemption", "ProcessSet",
    "Product", "PsringError", "rank", "remove_process_set", "run", "shutdown", "size", "Sum", "sum",
]  # fmt: skip
