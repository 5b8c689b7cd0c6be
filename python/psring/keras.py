"""psring for Keras 3, on any of its backends: JAX, TensorFlow, PyTorch.

    import psring.keras as ps

    ps.init()
    model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.Adam(1e-3)), ...)
    model.fit(..., callbacks=[ps.BroadcastCallback()])

Gradients are averaged when they are applied: with PyTorch's and JAX's backends as
arrays of the host, with TensorFlow's through tf.py_function. For overlap with
backward, use psring.torch.
"""

from typing import Any, List

import keras
import numpy as np

from . import _job, _models
from . import collectives as memory
from ._job import init, is_initialized, local_rank, local_size, rank, shutdown, size
from ._lib import PsringError
from .collectives import Average, ReduceOp, Sum, allgather_object, auto_name, barrier, broadcast_object
from ._metrics import log
from .process_sets import ProcessSet, global_process_set


def _reduce_numpy(arrays: List[np.ndarray], op: ReduceOp, name: str, process_set: ProcessSet) -> List[np.ndarray]:
    results = [np.array(array, order="C", copy=True) for array in arrays]
    operations = [
        memory.allreduce_async_(result.reshape(-1), op, f"{name}.{i}", process_set=process_set)
        for i, result in enumerate(results)
    ]
    for operation in operations:
        operation.finish()
    return results


def _reduce(grads: List[Any], op: ReduceOp, name: str, process_set: ProcessSet) -> List[Any]:
    backend = keras.backend.backend()
    present = [i for i, grad in enumerate(grads) if grad is not None]
    values = [grads[i] for i in present]
    if backend == "torch":
        from .torch import grouped_allreduce

        reduced = grouped_allreduce(values, op=op, name=name, process_set=process_set)
    elif backend == "jax":
        from .jax import allreduce

        reduced = allreduce(values, op=op, name=name, process_set=process_set)
    elif backend == "tensorflow":
        import tensorflow as tf

        def call(*tensors: Any) -> List[np.ndarray]:
            return _reduce_numpy([t.numpy() for t in tensors], op, name, process_set)

        values = [tf.convert_to_tensor(value) for value in values]
        reduced = tf.py_function(call, values, [value.dtype for value in values])
        for value, result in zip(values, reduced):
            result.set_shape(value.shape)
    else:
        raise NotImplementedError(f"psring.keras does not support Keras' backend {backend!r}")
    out = list(grads)
    for i, value in zip(present, reduced):
        out[i] = value
    return out


class _Distributed:
    """What DistributedOptimizer adds to the class of an optimizer."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        op, name, process_set = self._psring  # type: ignore[attr-defined]
        grads = _reduce(list(grads), op, name, process_set)
        return super().apply(grads, trainable_variables)  # type: ignore[misc]


def _check_settings(job: _job.Job) -> None:
    """Raises where init() or the environment asks for what an average before each step is not."""
    sync, staleness = _models.choose_sync(job, None, None)
    here = f"rank {job.rank}: psring.keras.DistributedOptimizer averages the gradients of all ranks before each step"
    if not _job.takes_steps_together(sync):
        setting = sync if staleness is None else f"{sync}:{staleness}"
        raise ValueError(
            f'{here}, so sync="{setting}" (PSRING_SYNC, --sync of psring run) is not possible: use sync="bsp"; '
            "psring.torch.DistributedOptimizer and psring.jax.FusedOptimizer have ssp and async"
        )
    if job.defaults["update"] == "fused":
        raise ValueError(
            f'{here}, which Keras applies: update="fused" (PSRING_UPDATE) is not possible: use update="local"; '
            "psring.torch.DistributedOptimizer and psring.jax.FusedOptimizer have fused updates"
        )
    compress = _models.choose_compress(job, None)
    if compress != "none":
        raise ValueError(f'{here} as they are: compress="{compress}" (PSRING_COMPRESS) is not possible: use "none"')
    if job.mode == "ddp":
        raise ValueError(f'{here} over psring\'s own transport: mode="ddp" is not possible: use mode "ring" or "ps"')


def DistributedOptimizer(
    optimizer: Any, op: ReduceOp = Average, process_set: ProcessSet = global_process_set
) -> Any:
    """Makes a Keras optimizer apply the mean of everybody's gradients. It is the
    same object, with its state. All ranks step together, in mode ps, too."""
    _check_settings(_job.current())
    memory.op_code(op)
    if op not in (Average, Sum):
        raise ValueError(f"DistributedOptimizer(op={op.name}): it is Average or Sum")
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is a DistributedOptimizer already")
    kind = type(optimizer)
    optimizer._psring = (op, auto_name("keras.gradients", process_set), process_set)
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), {})
    return optimizer


def broadcast_weights(model: Any, root_rank: int = 0) -> None:
    """Makes the weights of a model, or the variables of an optimizer, the root's."""
    variables = model.weights if hasattr(model, "weights") else model.variables
    values = [np.asarray(keras.ops.convert_to_numpy(variable)) for variable in variables]
    for variable, value in zip(variables, broadcast_object(values, root_rank)):
        variable.assign(value)


class BroadcastCallback(keras.callbacks.Callback):
    """When training begins, everybody's weights become the root's."""

    def __init__(self, root_rank: int = 0):
        super().__init__()
        self._root_rank, self._done = root_rank, False

    def on_train_begin(self, logs: Any = None) -> None:
        if not self._done and self.model.built:
            broadcast_weights(self.model, self._root_rank)
            self._done = True


class MetricAverageCallback(keras.callbacks.Callback):
    """At the end of an epoch, metrics become their mean over all ranks. It goes
    before callbacks that read them."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not logs:
            return
        names = sorted(name for name in logs if np.isscalar(logs[name]) or getattr(logs[name], "ndim", 1) == 0)
        means = np.array([float(logs[name]) for name in names])
        [means] = _reduce_numpy([means], Average, "keras.metrics", global_process_set)
        logs.update(zip(names, means.tolist()))


class LearningRateWarmupCallback(keras.callbacks.Callback):
    """The rate climbs linearly from `initial_lr` / size() to `initial_lr`, which is
    meant to be the rate for all ranks together, over `warmup_epochs` (Goyal et al.
    2017)."""

    def __init__(self, initial_lr: float, warmup_epochs: float = 5.0):
        super().__init__()
        self._target, self._epochs = initial_lr, warmup_epochs
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        steps = self.params.get("steps") or 1
        done = self._epoch + batch / steps
        if self._epochs <= 0 or done > self._epochs + 1.0 / steps:
            return
        part = min(done / self._epochs, 1.0)
        first = self._target / _job.size()
        self.model.optimizer.learning_rate = first + (self._target - first) * part


__all__ = [
    "Average", "BroadcastCallback", "DistributedOptimizer", "LearningRateWarmupCallback",
    "MetricAverageCallback", "ProcessSet", "PsringError", "Sum", "allgather_object",
    "barrier", "broadcast_object", "broadcast_weights", "global_process_set", "init", "is_initialized",
    "local_rank", "local_size", "log", "rank", "shutdown", "size",
]  # fmt: skip
