"""psring for Keras 3, on any of its backends: JAX, TensorFlow, PyTorch.

    import psring.keras as ps

    ps.init()
    model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.Adam(1e-3)), ...)
    model.fit(..., callbacks=[ps.BroadcastCallback()])

Gradients are averaged when they are applied, or with update="fused" go to the servers
or the ring, which apply the optimizer: with PyTorch's and JAX's backends as arrays of
the host, with TensorFlow's through tf.py_function. For overlap with backward, use
psring.torch.
"""

from . import elastic
from .._job import is_initialized, local_rank, local_size, rank, size
from .._lib import PsringError
from .._lifecycle import init, shutdown
from .._metrics import log
from ..collectives import Average, Sum, allgather_object, barrier, broadcast_object, join, mean, sum
from ..process_sets import ProcessSet, global_process_set
from .batch_norm import SyncBatchNormalization
from .callbacks import BroadcastCallback, LearningRateWarmupCallback, MetricAverageCallback, broadcast_weights
from .optimizer import DistributedOptimizer

__all__ = [
    "Average", "BroadcastCallback", "DistributedOptimizer", "LearningRateWarmupCallback",
    "MetricAverageCallback", "ProcessSet", "PsringError", "Sum", "SyncBatchNormalization", "allgather_object",
    "barrier", "broadcast_object", "broadcast_weights", "elastic", "global_process_set", "init", "is_initialized",
    "join", "local_rank", "local_size", "log", "mean", "rank", "shutdown", "size", "sum",
]  # fmt: skip
