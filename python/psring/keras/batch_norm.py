"""Batch normalisation with the statistics of all ranks' batches."""

import importlib
from typing import Any, Tuple

import keras

from .. import _job
from ..collectives import Sum
from .on_host import supported_backend


def _summed(value: Any) -> Any:
    """Over all ranks, with a gradient."""
    return importlib.import_module(f"..{supported_backend()}", "psring.keras").allreduce(value, op=Sum)


@keras.saving.register_keras_serializable("psring")
class SyncBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """keras.layers.BatchNormalization whose mean and variance are those of all ranks' batches, which may differ in
    size. In evaluation it is the same as that, and so are its arguments and weights. Training needs init(), also in a
    single process.

    All ranks call it in the same order. A forward pass takes two small allreduces, and so does its backward pass; the
    gradient is the exact one.
    """

    def _moments(self, inputs: Any, mask: Any) -> Tuple[Any, Any]:
        if _job.size() == 1:
            return super()._moments(inputs, mask)  # type: ignore[no-any-return]
        ops, axes = keras.ops, self._reduction_axes

        def reduced(values: Any) -> Any:
            return ops.sum(values, axes, keepdims=True)

        if mask is None:
            sums = reduced(inputs)
            counts = ops.ones_like(sums) * (ops.cast(ops.size(inputs), sums.dtype) / inputs.shape[self.axis])
        else:
            mask = ops.broadcast_to(ops.expand_dims(ops.cast(mask, "bool"), -1), ops.shape(inputs))
            sums, counts = reduced(ops.where(mask, inputs, 0)), reduced(ops.cast(mask, inputs.dtype))
        both = _summed(ops.stack([sums, counts]))
        counts = ops.stop_gradient(ops.maximum(both[1], 1))
        mean = both[0] / counts
        centred = inputs - mean if mask is None else ops.where(mask, inputs - mean, 0)
        variance = _summed(reduced(ops.square(centred))) / counts
        return ops.reshape(mean, (-1,)), ops.reshape(variance, (-1,))
