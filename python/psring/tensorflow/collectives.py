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
from .._host_arrays import Scales, broadcast_in_place, number_of_dtype, reduce_in_packs
from .._names import call_name, name_among
from .._rows import cuts, shared_out, tag
from ..collectives import Average, ReduceOp, Sum
from ..process_sets import ProcessSet, check_process_set, global_process_set
from ._host import call_on_host, custom_gradient, in_function, is_variable, unconverted
from .compression import Compression, compressor


def _tensors(values: Any, what: str) -> List[Any]:
    """Errors: what has no elements that other processes could use."""
    tensors = [tf.convert_to_tensor(value) for value in values]
    for tensor in tensors:
        if tensor.dtype in (tf.string, tf.variant, tf.resource):
            raise TypeError(f"rank {_job.rank()}: psring.tensorflow.{what} of {tensor.dtype.name}: it takes numbers")
    return tensors


def _op(op: Optional[ReduceOp], average: Optional[bool], tensors: Sequence[Any], what: str) -> ReduceOp:
    """The reduction from `op` and Horovod's old `average`. Errors: tensors that it does not take."""
    if average is not None:
        if op is not None:
            raise ValueError("average= and op= are two names of one thing: give op alone")
        op = Average if average else Sum
    op = Average if op is None else op
    memory.op_code(op)
    for tensor in tensors:
        number_of_dtype(np.dtype(tensor.dtype.as_numpy_dtype))
        if op is Average and not tensor.dtype.is_floating:
            raise ValueError(
                f"rank {_job.rank()}: psring.tensorflow.{what}: op=Average of {tensor.dtype.name} has no exact result: use "
                "op=psring.tensorflow.Sum, or convert to floats"
            )
    return op


def _name(name: Optional[str], what: str, process_set: ProcessSet) -> str:
    """Calls within tf.function run in the order of its program, one after another, and share a name: one rank may
    trace a function again where another does not."""
    if name is None and in_function():
        check_process_set(process_set)
        return name_among(f"tensorflow.{what}.in_function", process_set)
    return call_name(name, "tensorflow." + what, process_set)


def _like(tensors: Sequence[Any]) -> List[Tuple[Any, Any]]:
    return [(tensor.dtype, tensor.shape) for tensor in tensors]


def _of_real(
    values: Sequence[Any], gradients: Sequence[Any], what: str, call: Callable[[List[Any]], List[Any]]
) -> List[Any]:
    """call(gradients) for the values that have some, and None for the others: whole numbers and booleans."""
    real = [i for i, value in enumerate(values) if value.dtype.is_floating or value.dtype.is_complex]
    of_real = iter(call(_tensors([gradients[i] for i in real], what)) if real else [])
    return [next(of_real) if i in real else None for i in range(len(values))]


def _without_gradient(values: Sequence[Any], gradients: Sequence[Any], what: str, op: ReduceOp) -> List[Any]:
    """Zeros, if `gradients` are: a tape asks for those of all results of a tf.function, also of a metric."""

    def call(arrays: List[np.ndarray]) -> List[np.ndarray]:
        if any(array.any() for array in arrays):
            raise NotImplementedError(
                f"rank {_job.rank()}: psring.tensorflow.{what} with op={op.name} has no gradient: use tf.stop_gradient() of "
                "the argument"
            )
        return []

    def zeros(real: List[Any]) -> List[Any]:
        call_on_host(call, real, [])
        return [tf.zeros_like(value) for value in values if value.dtype.is_floating or value.dtype.is_complex]

    return _of_real(values, gradients, what, zeros)


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
                return _without_gradient(values, gradients, "allreduce", op)
            reduced = functools.partial(reduce_tensors, op=op, name=name + ".grad", scales=scales, process_set=process_set)
            return _of_real(values, gradients, "allreduce", reduced)

        return call_on_host(call, values, _like(values)), gradient

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
    gathered = _gather(_tensors(both, "allreduce"), name, process_set)
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
    tensors = iter(_tensors(whole_ones, what))
    values = [value if isinstance(value, tf.IndexedSlices) else next(tensors) for value in values]
    op = _op(op, average, values, what)
    if not values:
        return []
    return reduce_each(values, op, compression, scales, _name(name, what, process_set), process_set)


# ---- allgather, alltoall, reducescatter --------------------------------------


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
            means = _of_real(values, gradients, "allgather", lambda real: _mean(real, name, process_set))
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
    return _gather(_tensors([tensor], "allgather"), _name(name, "allgather", process_set), process_set)[0]


@unconverted
def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[Any]:
    """allgather of several tensors, which run at the same time."""
    values = _tensors(tensors, "grouped_allgather")
    return _gather(values, _name(name, "grouped_allgather", process_set), process_set) if values else []


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

            return [*_of_real([value], [of_out], "alltoall", back), None]

        return [out, counts], gradient

    return list(exchange(tensor, splits))


@unconverted
def alltoall(
    tensor: Any, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends splits[i] rows to the i-th rank, and returns what came, by rank.

    Without splits each rank gets as many. With splits, the second result is the number of rows that came from each rank.
    """
    [value] = _tensors([tensor], "alltoall")
    shares = tf.convert_to_tensor([] if splits is None else splits, tf.int64 if splits is None else None)
    if not shares.dtype.is_integer:
        raise TypeError(f"rank {_job.rank()}: psring.tensorflow.alltoall: splits of {shares.dtype.name}: they are whole numbers")
    out, counts = _exchange(value, shares, _name(name, "alltoall", process_set), process_set)
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
                return _without_gradient(values, gradients, "reducescatter", op)
            factor = scales.before * scales.after * (ranks if op is Sum else 1)

            def gathered(real: List[Any]) -> List[Any]:
                scaled = [gradient * tf.cast(factor, gradient.dtype) for gradient in real]
                return _gather(scaled, name + ".grad", process_set)

            return _of_real(values, gradients, "reducescatter", gathered)

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
        [tensor], device_dense, compression, op, name or _name(None, "reducescatter", process_set), process_set,
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
    small = [compression.compress(tensor) for tensor in _tensors(tensors, what)]
    values = [tensor for tensor, _ in small]
    op = _op(op, None, values, what)
    if any(value.shape.rank == 0 for value in values):
        raise ValueError(f"rank {_job.rank()}: psring.tensorflow.{what} cuts dimension 0, which this tensor does not have")
    if not values:
        return []
    called = _name(name, "grouped_" + what, process_set)
    out = _scatter(values, op, called, Scales(prescale_factor, postscale_factor), process_set)
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(out, small)]


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
            means = _of_real(values, gradients, "broadcast", lambda real: _mean(real, name, process_set))
            return means if _job.rank() == root_rank else [None if mean is None else tf.zeros_like(mean) for mean in means]

        return call_on_host(call, values, _like(values)), gradient

    return list(broadcast_all(*tensors)) if tensors else call_on_host(call, [], [])


@unconverted
def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The tensor of rank `root_rank` (of the job). Shapes and dtypes must agree.

    The gradient, at the root, is the mean of all ranks' (as Horovod's); elsewhere it is 0.
    """
    root_rank = memory.check_root(root_rank, process_set)
    values = _tensors([tensor], "broadcast")
    return _broadcast(values, root_rank, _name(name, "broadcast", process_set), process_set)[0]


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
    values = _tensors(kept, "broadcast_variables")
    name = _name(None, "broadcast_variables", process_set)
    texts = [f"variable {i}, {value.dtype.name}{value.shape}" for i, value in enumerate(values)]
    compare = functools.partial(memory.agree, texts, name + ".variables", process_set)
    for variable, value in zip(kept, _broadcast(values, root_rank, name, process_set, compare)):
        variable.assign(value)
