"""psring for TensorFlow 2: training loops of a script's own, in tf.function or outside.

    import psring.tensorflow as ps

    ps.init()

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(model(images, training=True), labels)
        tape = ps.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    ps.broadcast_variables(model.variables, root_rank=0)

The names are Horovod's, too: `import psring.tensorflow as hvd` is all that such a script needs to change. For
model.fit(), and for updates by servers or the ring, there is psring.keras.

Within tf.function a call is a tf.py_function, so all ranks make their calls in the program's order; XLA cannot make them
(jit_compile). Tensors of a GPU are copied through the host's memory.
"""

from typing import TYPE_CHECKING

from .. import _horovod
from .. import collectives as _memory
from . import _host, elastic
from .._horovod import ccl_built, ddl_built, gloo_built, gloo_enabled, mpi_built, mpi_enabled, mpi_threads_supported, rocm_built
from .._job import cross_rank, cross_size, is_initialized, local_rank, local_size, mode, rank, size
from .._lib import InvalidArgumentError, JobFailedError, PsringError
from .._lifecycle import init, shutdown
from .._metrics import log, log_to
from .._preemption import Preemption
from ..collectives import Adasum, Average, Max, Min, Product, Sum, mean, sum
from ..process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from .collectives import allgather, allreduce, broadcast, broadcast_variables, grouped_allgather, grouped_allreduce
from .compression import Compression, Compressor
from .exchanges import alltoall, grouped_reducescatter, reducescatter
from .gradients import DistributedGradientTape, PartialDistributedGradientTape

allgather_object, broadcast_object = _host.at_once(_memory.allgather_object), _host.at_once(_memory.broadcast_object)
barrier, join = _host.at_once(_memory.barrier), _host.at_once(_memory.join)

# Horovod's name.
HorovodInternalError = PsringError


def nccl_built() -> int:
    """0: tensors on GPUs are copied through the host."""
    return 0


def cuda_built() -> bool:
    """False, as nccl_built()."""
    return False


__all__ = [
    "Adasum", "add_process_set", "allgather", "allgather_object", "allreduce", "alltoall", "Average", "barrier",
    "broadcast", "broadcast_object", "broadcast_variables", "ccl_built", "Compression", "Compressor", "cross_rank",
    "cross_size", "cuda_built", "ddl_built", "DistributedGradientTape", "elastic", "global_process_set",
    "gloo_built", "gloo_enabled", "grouped_allgather", "grouped_allreduce", "grouped_reducescatter",
    "HorovodInternalError", "init", "InvalidArgumentError", "is_initialized", "JobFailedError", "join",
    "local_rank", "local_size", "log", "log_to", "Max", "mean", "Min", "mode", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "PartialDistributedGradientTape", "Preemption", "ProcessSet", "Product",
    "PsringError", "rank", "reducescatter", "remove_process_set", "rocm_built", "shutdown", "size", "Sum", "sum",
]  # fmt: skip

# Horovod's names that have no place here, and what does.
_NOT_HERE = {
    "DistributedOptimizer": "use DistributedGradientTape, or psring.keras.DistributedOptimizer of one of keras.optimizers",
    "broadcast_global_variables": "TensorFlow 2 has no global variables: use broadcast_variables(model.variables)",
    "BroadcastGlobalVariablesHook": "TensorFlow 2 has no sessions: use broadcast_variables(model.variables)",
    "SyncBatchNormalization": "use psring.keras.SyncBatchNormalization",
    "is_homogeneous": "compare local_size() over all ranks, with allgather_object",
    "local_rank_op": "local_rank() is the same in all steps",
    "local_size_op": "local_size() is the same in all steps",
    "rank_op": "rank() is the same in all steps",
    "size_op": "size() is the same in all steps",
    "start_timeline": "the metrics of a job are PSRING_METRICS_DIR's, and tf.profiler shows a rank's time",
    "stop_timeline": "the metrics of a job are PSRING_METRICS_DIR's, and tf.profiler shows a rank's time",
}


if not TYPE_CHECKING:  # a checker would take any name for one of the module's
    __getattr__ = _horovod.refuser("psring.tensorflow", _NOT_HERE)
