"""psring for PyTorch.

    import psring.torch as ps

    ps.init()
    opt = ps.DistributedOptimizer(opt, model=model)

The names are Horovod's, too: `import psring.torch as hvd` is all that a Horovod
script needs to change.
"""

from typing import TYPE_CHECKING, Any

import torch as _torch

from .. import _horovod
from .. import collectives as _memory
from . import _alone  # noqa: F401: warns at the end
from . import elastic
from . import group_rendezvous as _group_rendezvous
from .._horovod import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from .._job import cross_rank, cross_size, is_initialized, local_rank, local_size, mode, rank, size
from .._lib import InvalidArgumentError, JobFailedError, PsringError
from .._lifecycle import init, shutdown
from ..collectives import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather_object,
    barrier,
    broadcast_object,
)
from .._metrics import log, log_to
from .._preemption import Preemption
from ..process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from .collectives import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    poll,
    synchronize,
)
from .compression import Compression, Compressor
from .exchanges import alltoall, alltoall_async, reducescatter, reducescatter_async
from .functions import broadcast_optimizer_state, broadcast_parameters
from .groups import (
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
)
from .optimizer import DistributedOptimizer
from .sync_batch_norm import SyncBatchNorm
from .uneven import join

# Horovod's name.
HorovodInternalError = PsringError


def sum(value: Any, process_set: ProcessSet = global_process_set) -> Any:
    """The sum over all ranks of a number or of a tensor's elements.

    Booleans are counted. Not differentiable: for that, allreduce(op=Sum).
    """
    if not isinstance(value, _torch.Tensor):
        return _memory.sum(value, process_set)
    value = value.detach()
    if value.dtype == _torch.bool:
        value = value.long()
    return allreduce(value, op=Sum, name=_memory.auto_name("sum", process_set), process_set=process_set)


def mean(value: Any, process_set: ProcessSet = global_process_set) -> Any:
    """The mean over all ranks of a number or of a tensor's elements.

    Of integers it is a tensor of floats. Not differentiable: for that, allreduce.
    """
    if not isinstance(value, _torch.Tensor):
        return _memory.mean(value, process_set)
    value = value.detach()
    if not value.is_floating_point() and not value.is_complex():
        value = value.to(_torch.get_default_dtype())
    return allreduce(value, op=Average, name=_memory.auto_name("mean", process_set), process_set=process_set)


def _backend(*arguments: Any) -> Any:
    # Older ones free the Python part of a collective's work while C++ code still waits for it, for ever.
    if tuple(map(int, _torch.__version__.split(".")[:2])) < (2, 7):
        raise RuntimeError(
            f"backend psring of torch.distributed needs torch 2.7 or newer, and this is {_torch.__version__}: "
            "DistributedOptimizer runs with this one"
        )
    from .process_group import _create

    return _create(*arguments)


# For torch.distributed.init_process_group("psring").
if hasattr(_torch, "compile") and _torch.distributed.is_available():
    if not hasattr(_torch.distributed.Backend, "PSRING"):
        _torch.distributed.Backend.register_backend("psring", _backend, extended_api=True, devices=["cpu"])
        _group_rendezvous.install()


# Horovod's names that have no place here, and what does.
_NOT_HERE = {
    "is_homogeneous": "compare local_size() over all ranks, with allgather_object",
    "start_timeline": "the metrics of a job are PSRING_METRICS_DIR's, and torch.profiler shows a rank's time",
    "stop_timeline": "the metrics of a job are PSRING_METRICS_DIR's, and torch.profiler shows a rank's time",
    "sparse_allreduce_async": "DistributedOptimizer reduces sparse gradients itself",
    "check_extension": "import psring.torch has checked it already",
}


if not TYPE_CHECKING:  # a checker would take any name for one of the module's
    __getattr__ = _horovod.refuser("psring.torch", _NOT_HERE)


# What import * takes, and what type checkers let a script use.
__all__ = [
    "Adasum", "add_process_set", "allgather", "allgather_async", "allgather_object", "allreduce",
    "allreduce_", "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async", "Average", "barrier",
    "broadcast", "broadcast_", "broadcast_async", "broadcast_async_", "broadcast_object",
    "broadcast_optimizer_state", "broadcast_parameters", "ccl_built", "Compression", "Compressor",
    "cross_rank", "cross_size", "cuda_built", "ddl_built", "DistributedOptimizer", "elastic", "global_process_set",
    "gloo_built", "gloo_enabled", "grouped_allgather", "grouped_allgather_async", "grouped_allreduce",
    "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter",
    "grouped_reducescatter_async", "HorovodInternalError", "init", "InvalidArgumentError", "is_initialized",
    "JobFailedError", "join", "local_rank", "local_size", "log", "log_to", "Max", "mean", "Min", "mode",
    "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "poll", "Preemption", "ProcessSet",
    "Product", "PsringError", "rank", "reducescatter", "reducescatter_async", "remove_process_set",
    "rocm_built", "shutdown", "size", "Sum", "sum", "SyncBatchNorm", "synchronize",
]  # fmt: skip
