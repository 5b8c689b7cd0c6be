"""psring for JAX: allreduces of pytrees and a fused update, outside of jit and inside.

    import psring.jax as ps

    ps.init()
    optimizer = ps.FusedOptimizer(params, "adam", lr=1e-3)
    params = optimizer.parameters()
    for batch in batches:
        params = optimizer.step(jax.grad(loss)(params, batch))

or, with an optimizer of the script's own:

    params = ps.broadcast(params)
    grads = ps.allreduce(jax.grad(loss)(params, batch))

Inside jit a call is an ordered host callback, so all ranks make their calls in the
program's order. Not inside vmap, pmap or a scan whose length differs between ranks.
Arrays of the CPU are read where they lie, and results become JAX's without a copy;
those of a GPU are copied through the host's memory.
"""

from typing import TYPE_CHECKING

from .. import _horovod, _job
from . import _arrays, elastic
from .._job import is_initialized, local_rank, local_size, mode, rank, size
from .._lib import PsringError
from .._lifecycle import init, shutdown
from .._metrics import log
from ..collectives import (
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather_object,
    barrier,
    broadcast_object,
    join,
    mean,
    sum,
)
from ..process_sets import ProcessSet, global_process_set
from .collectives import allreduce, broadcast
from .fused import FusedOptimizer

_job.before_join(_arrays.wait_for_callbacks)  # of its last batches, which would come after its join
_job.before_end(_arrays.wait_for_callbacks)

__all__ = [
    "Average", "FusedOptimizer", "Max", "Min", "Product", "ProcessSet", "PsringError", "Sum", "allgather_object",
    "allreduce", "barrier", "broadcast", "broadcast_object", "elastic", "global_process_set", "init", "is_initialized",
    "join", "local_rank", "local_size", "log", "mean", "mode", "rank", "shutdown", "size", "sum",
]  # fmt: skip


_INSTEAD = "use FusedOptimizer, or broadcast() once and allreduce() of the gradients"

if not TYPE_CHECKING:  # a checker would take any name for one of the module's
    __getattr__ = _horovod.refuser("psring.jax", dict.fromkeys(["DistributedOptimizer", "broadcast_parameters"], _INSTEAD))
