"""Collectives that exchange a tensor's rows: alltoall and reducescatter."""

from typing import Any, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from .. import _job
from .. import collectives as memory
from .._host_arrays import Scales, number_of_dtype
from .._rows import cuts, shared_out
from ..collectives import Average, ReduceOp, Sum
from ..process_sets import ProcessSet, global_process_set
from ._host import call_on_host, custom_gradient, unconverted
from ._tensors import name_of, of_real, reduction, to_tensors, without_gradient
from .collectives import _gather, _like_rows, _received, _rows
from .compression import Compression, compressor


def _exchange(tensor: Any, splits: Any, name: str, process_set: ProcessSet) -> List[Any]:
    ranks = process_set.size()

    def call(arrays: List[np.ndarray]) -> List[np.ndarray]:
        rows, row, text = _rows(arrays[0])
        here = f"rank {_job.rank()}: psring.tensorflow.alltoall"
        splits = arrays[1].reshape(-1) if arrays[1].size else None
        sizes = [count * row for count in cuts(here, len(rows), splits, ranks)]
        operation = memory.start_alltoall(name, rows.ctypes.data, sizes, text, process_set, rows)
        return _received(operation, rows, row, ranks)

    @custom_gradient
    def exchange(value: Any, shares: Any) -> Any:
        out, counts = call_on_host(call, [value, shares], _like_rows(value))

        def gradient(of_out: Any, _: Any) -> List[Any]:
            def back(real: List[Any]) -> List[Any]:
                return [tf.reshape(_exchange(real[0], counts, name + ".grad", process_set)[0], tf.shape(value))]

            return [*of_real([value], [of_out], "alltoall", back), None]

        return [out, counts], gradient

    return list(exchange(tensor, splits))


@unconverted
def alltoall(
    tensor: Any, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends splits[i] rows to the i-th rank, and returns what came, by rank.

    Without splits each rank gets as many. With splits, the second result is the number of rows that came from each rank.
    """
    [value] = to_tensors([tensor], "alltoall")
    shares = tf.convert_to_tensor([] if splits is None else splits, tf.int64 if splits is None else None)
    if not shares.dtype.is_integer:
        raise TypeError(f"rank {_job.rank()}: psring.tensorflow.alltoall: splits of {shares.dtype.name}: they are whole numbers")
    out, counts = _exchange(value, shares, name_of(name, "alltoall", process_set), process_set)
    return out if splits is None else (out, tf.cast(counts, tf.int32))


def _scatter(tensors: Sequence[Any], op: ReduceOp, name: str, scales: Scales, process_set: ProcessSet) -> List[Any]:
    ranks, me = process_set.size(), process_set.rank()

    def call(arrays: List[np.ndarray]) -> List[np.ndarray]:
        outs, operations = [], []
        for i, array in enumerate(arrays):
            source = np.ascontiguousarray(array)
            rows = shared_out(len(source), ranks)
            row = int(np.prod(source.shape[1:], dtype=np.int64))
            out = np.empty((rows[me], *source.shape[1:]), source.dtype)
            operations.append(
                memory.start_reducescatter(
                    f"{name}.{i}", source.ctypes.data, out.ctypes.data, [count * row for count in rows],
                    number_of_dtype(source.dtype), op, *scales, process_set, (source, out),
                )  # fmt: skip
            )
            outs.append(out)
        for operation in operations:
            operation.finish()
        return outs

    @custom_gradient
    def scatter(*values: Any) -> Any:
        def gradient(*gradients: Any) -> List[Any]:
            if op not in (Average, Sum):
                return without_gradient(values, gradients, "reducescatter", op)
            factor = scales.before * scales.after * (ranks if op is Sum else 1)

            def gathered(real: List[Any]) -> List[Any]:
                scaled = [gradient * tf.cast(factor, gradient.dtype) for gradient in real]
                return _gather(scaled, name + ".grad", process_set)

            return of_real(values, gradients, "reducescatter", gathered)

        return call_on_host(call, values, [_like_rows(value)[0] for value in values]), gradient

    return list(scatter(*tensors))


@unconverted
def reducescatter(
    tensor: Any, device_dense: str = "", compression: Any = Compression.none, op: Optional[ReduceOp] = None,
    name: Optional[str] = None, process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Any:  # fmt: skip
    """This rank's rows of the reduction, by default the mean.

    Rows are shared out evenly; the first ranks get one more where that leaves some.
    """
    return grouped_reducescatter(
        [tensor], device_dense, compression, op, name or name_of(None, "reducescatter", process_set), process_set,
        prescale_factor, postscale_factor,
    )[0]  # fmt: skip


@unconverted
def grouped_reducescatter(
    tensors: Sequence[Any], device_dense: str = "", compression: Any = Compression.none,
    op: Optional[ReduceOp] = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> List[Any]:  # fmt: skip
    """reducescatter of several tensors, which run at the same time."""
    what = "reducescatter"
    compression = compressor(compression)
    small = [compression.compress(tensor) for tensor in to_tensors(tensors, what)]
    values = [tensor for tensor, _ in small]
    op = reduction(op, None, values, what)
    if any(value.shape.rank == 0 for value in values):
        raise ValueError(f"rank {_job.rank()}: psring.tensorflow.{what} cuts dimension 0, which this tensor does not have")
    if not values:
        return []
    called = name_of(name, "grouped_" + what, process_set)
    out = _scatter(values, op, called, Scales(prescale_factor, postscale_factor), process_set)
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(out, small)]
