"""Collectives on tensors, under Horovod's names, outside of tf.function and inside.

Tensors are tf.Tensors, variables, or what tf.convert_to_tensor() takes. Reductions take the dtypes that psring.torch
takes. All have gradients: those of Horovod.
"""

import functools
from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from .. import _job, _lib
from .. import collectives as memory
from .._host_arrays import Scales, broadcast_in_place, reduce_in_packs
from .._rows import tag
from ..collectives import Average, ReduceOp, Sum
from ..process_sets import ProcessSet, global_process_set
from ._host import call_on_host, custom_gradient, is_variable, unconverted
from ._tensors import like_each, name_of, of_real, reduction, to_tensors, without_gradient
from .compression import Compression, compressor

# ---- allreduce ---------------------------------------------------------------


def reduce_tensors(
    tensors: Sequence[Any], op: ReduceOp, name: str, scales: Scales, process_set: ProcessSet,
    before: Callable[[], None] = lambda: None,
) -> List[Any]:  # fmt: skip
    """`before` is called on the host each time before they are reduced."""

    def call(arrays: List[np.ndarray]) -> List[np.ndarray]:
        before()
        return reduce_in_packs(arrays, op, name, process_set, scales)

    @custom_gradient
    def reduce(*values: Any) -> Any:
        def gradient(*gradients: Any) -> List[Any]:
            if op not in (Average, Sum):
                return without_gradient(values, gradients, "allreduce", op)
            reduced = functools.partial(reduce_tensors, op=op, name=name + ".grad", scales=scales, process_set=process_set)
            return of_real(values, gradients, "allreduce", reduced)

        return call_on_host(call, values, like_each(values)), gradient

    return list(reduce(*tensors)) if tensors else call_on_host(call, [], [])


def _mean(gradients: List[Any], name: str, process_set: ProcessSet) -> List[Any]:
    return reduce_tensors(gradients, Average, name + ".grad", Scales(), process_set)


def reduce_slices(
    slices: Sequence[tf.IndexedSlices], op: ReduceOp, name: str, scales: Scales, process_set: ProcessSet
) -> List[tf.IndexedSlices]:
    """Everybody's slices, one after the other: what they are applied to adds those of one index up.

    They are gathered, so only Average and Sum have a meaning.
    """
    if op not in (Average, Sum):
        raise ValueError(f"rank {_job.rank()}: psring.tensorflow: op={op.name} of IndexedSlices: it is Average or Sum")
    both = [part for each in slices for part in (each.values, each.indices)]
    gathered = _gather(to_tensors(both, "allreduce"), name, process_set)
    factor = scales.before * scales.after / (process_set.size() if op is Average else 1)
    out = []
    for each, values, indices in zip(slices, gathered[::2], gathered[1::2]):
        scaled = values if factor == 1 else values * tf.cast(factor, values.dtype)
        out.append(tf.IndexedSlices(scaled, indices, each.dense_shape))
    return out


def reduce_each(
    values: Sequence[Any], op: ReduceOp, compression: Any, scales: Scales, name: str, process_set: ProcessSet,
    before: Callable[[], None] = lambda: None,
) -> List[Any]:  # fmt: skip
    """Tensors and IndexedSlices, each as what it is; None stays None. `before` as in reduce_tensors()."""
    out = list(values)
    sparse = [i for i, each in enumerate(out) if isinstance(each, tf.IndexedSlices)]
    dense = [i for i, each in enumerate(out) if each is not None and i not in sparse]
    small = [compression.compress(out[i]) for i in dense]
    reduced = reduce_tensors([tensor for tensor, _ in small], op, name, scales, process_set, before)
    for i, tensor, (_, ctx) in zip(dense, reduced, small):
        out[i] = compression.decompress(tensor, ctx)
    if sparse:
        slices = reduce_slices([out[i] for i in sparse], op, name + ".slices", scales, process_set)
        for i, each in zip(sparse, slices):
            out[i] = each
    return out


@unconverted
def allreduce(
    tensor: Any, average: Optional[bool] = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, op: Optional[ReduceOp] = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> Any:  # fmt: skip
    """The reduction of a tensor over all ranks, by default its mean: postscale * reduction(prescale * tensor).

    The same bits on all ranks. The gradient is reduced in the same way. Of IndexedSlices, the gradient of an
    embedding, it is everybody's slices, for Average divided by the number of ranks.

    Args:
        device_dense, device_sparse: Horovod's; without effect, as psring reduces on the host.
    """
    scales = Scales(prescale_factor, postscale_factor)
    [reduced] = _allreduce([tensor], "allreduce", average, compression, op, scales, name, process_set)
    return reduced


@unconverted
def grouped_allreduce(
    tensors: Sequence[Any], average: Optional[bool] = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, op: Optional[ReduceOp] = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> List[Any]:  # fmt: skip
    """allreduce of several tensors and IndexedSlices, which run at the same time."""
    scales = Scales(prescale_factor, postscale_factor)
    return _allreduce(tensors, "grouped_allreduce", average, compression, op, scales, name, process_set)


def _allreduce(
    values: Sequence[Any], what: str, average: Optional[bool], compression: Any, op: Optional[ReduceOp],
    scales: Scales, name: Optional[str], process_set: ProcessSet,
) -> List[Any]:  # fmt: skip
    compression = compressor(compression)
    whole_ones = [value for value in values if not isinstance(value, tf.IndexedSlices)]
    tensors = iter(to_tensors(whole_ones, what))
    values = [value if isinstance(value, tf.IndexedSlices) else next(tensors) for value in values]
    op = reduction(op, average, values, what)
    if not values:
        return []
    return reduce_each(values, op, compression, scales, name_of(name, what, process_set), process_set)


# ---- allgather ---------------------------------------------------------------


def _rows(array: np.ndarray) -> Tuple[np.ndarray, int, str]:
    """An array with a first dimension, the bytes of one row, and the tag by which ranks compare them."""
    array = np.ascontiguousarray(array)  # of at least one dimension
    row = array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    if row == 0:
        raise ValueError(f"rank {_job.rank()}: rows without elements, of shape {list(array.shape)}, cannot be counted")
    return array, row, tag(str(array.dtype), array.shape)


def _received(operation: _lib.Operation, like: np.ndarray, row: int, ranks: int) -> List[np.ndarray]:
    """What came, by rank one after the other, and the numbers of rows."""
    operation.wait()
    sizes = operation.sizes(ranks)
    counts = np.array([size // row for size in sizes], np.int64)
    out = np.empty((int(counts.sum()), *like.shape[1:]), like.dtype)
    if any(size % row for size in sizes):
        raise _lib.PsringError(f"the ranks of the set sent {sizes} bytes, no whole numbers of rows of {row} bytes")
    operation.result(out.ctypes.data, sum(sizes))
    operation.release()
    return [out, counts]


def _like_rows(tensor: Any) -> List[Tuple[Any, Any]]:
    """Of what comes in rows like this tensor's, and of their numbers by rank."""
    known = tensor.shape.rank is not None
    return [(tensor.dtype, [None, *tensor.shape[1:]] if known else None), (tf.int64, [None])]


def _gather(tensors: Sequence[Any], name: str, process_set: ProcessSet) -> List[Any]:
    ranks = process_set.size()

    def call(arrays: List[np.ndarray]) -> List[np.ndarray]:
        started = []
        for i, array in enumerate(arrays):
            rows, row, text = _rows(array)
            started.append((rows, row, memory.start_allgather(f"{name}.{i}", rows.ctypes.data, rows.nbytes, text, process_set, rows)))
        return [out for rows, row, operation in started for out in _received(operation, rows, row, ranks)]

    @custom_gradient
    def gather(*values: Any) -> Any:
        results = call_on_host(call, values, [like for value in values for like in _like_rows(value)])
        outs, counts = results[::2], results[1::2]

        def gradient(*gradients: Any) -> List[Any]:
            me, out = process_set.rank(), []
            means = of_real(values, gradients, "allgather", lambda real: _mean(real, name, process_set))
            for mean, rows, value in zip(means, counts, values):
                mine = None if mean is None else mean[tf.reduce_sum(rows[:me]) :][: rows[me]]
                out.append(None if mine is None else tf.reshape(mine, tf.shape(value)))
            return out

        return outs, gradient

    return list(gather(*tensors))


@unconverted
def allgather(tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """Everybody's tensors, one after the other along dimension 0.

    Their numbers of rows may differ; all else must agree. A tensor without dimensions is one row. The gradient is the mean
    of all ranks' (as Horovod's).
    """
    return _gather(to_tensors([tensor], "allgather"), name_of(name, "allgather", process_set), process_set)[0]


@unconverted
def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[Any]:
    """allgather of several tensors, which run at the same time."""
    values = to_tensors(tensors, "grouped_allgather")
    return _gather(values, name_of(name, "grouped_allgather", process_set), process_set) if values else []


# ---- broadcast ---------------------------------------------------------------


def _broadcast(
    tensors: Sequence[Any], root_rank: int, name: str, process_set: ProcessSet, before: Callable[[], None] = lambda: None
) -> List[Any]:
    def call(arrays: List[np.ndarray]) -> List[np.ndarray]:
        before()
        data = [np.array(array, order="C") for array in arrays]
        broadcast_in_place(data, root_rank, name, process_set)
        return data

    @custom_gradient
    def broadcast_all(*values: Any) -> Any:
        def gradient(*gradients: Any) -> List[Any]:
            means = of_real(values, gradients, "broadcast", lambda real: _mean(real, name, process_set))
            return means if _job.rank() == root_rank else [None if mean is None else tf.zeros_like(mean) for mean in means]

        return call_on_host(call, values, like_each(values)), gradient

    return list(broadcast_all(*tensors)) if tensors else call_on_host(call, [], [])


@unconverted
def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The tensor of rank `root_rank` (of the job). Shapes and dtypes must agree.

    The gradient, at the root, is the mean of all ranks' (as Horovod's); elsewhere it is 0.
    """
    root_rank = memory.check_root(root_rank, process_set)
    values = to_tensors([tensor], "broadcast")
    return _broadcast(values, root_rank, name_of(name, "broadcast", process_set), process_set)[0]


@unconverted
def broadcast_variables(
    variables: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> None:
    """Makes variables, such as a model's or an optimizer's, those of rank `root_rank`. All ranks call it.

    Errors, on all ranks: they are not the same in number, shape or dtype.

    Args:
        inplace: Horovod's; without effect.
    """
    root_rank = memory.check_root(root_rank, process_set)
    kept = [variables] if is_variable(variables) else list(variables)
    values = to_tensors(kept, "broadcast_variables")
    name = name_of(None, "broadcast_variables", process_set)
    texts = [f"variable {i}, {value.dtype.name}{value.shape}" for i, value in enumerate(values)]
    compare = functools.partial(memory.agree, texts, name + ".variables", process_set)
    for variable, value in zip(kept, _broadcast(values, root_rank, name, process_set, compare)):
        variable.assign(value)
