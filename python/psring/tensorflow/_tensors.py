"""What the collectives of psring.tensorflow have in common: their arguments, names and gradients."""

from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from .. import _job
from .. import collectives as memory
from .._host_arrays import number_of_dtype
from .._names import call_name, name_among
from ..collectives import Average, ReduceOp, Sum
from ..process_sets import ProcessSet, check_process_set
from ._host import call_on_host, in_function


def to_tensors(values: Any, what: str) -> List[Any]:
    """Errors: what has no elements that other processes could use."""
    tensors = [tf.convert_to_tensor(value) for value in values]
    for tensor in tensors:
        if tensor.dtype in (tf.string, tf.variant, tf.resource):
            raise TypeError(f"rank {_job.rank()}: psring.tensorflow.{what} of {tensor.dtype.name}: it takes numbers")
    return tensors


def reduction(op: Optional[ReduceOp], average: Optional[bool], tensors: Sequence[Any], what: str) -> ReduceOp:
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


def name_of(name: Optional[str], what: str, process_set: ProcessSet) -> str:
    """Calls within tf.function run in the order of its program, one after another, and share a name: one rank may
    trace a function again where another does not."""
    if name is None and in_function():
        check_process_set(process_set)
        return name_among(f"tensorflow.{what}.in_function", process_set)
    return call_name(name, "tensorflow." + what, process_set)


def like_each(tensors: Sequence[Any]) -> List[Tuple[Any, Any]]:
    return [(tensor.dtype, tensor.shape) for tensor in tensors]


def of_real(
    values: Sequence[Any], gradients: Sequence[Any], what: str, call: Callable[[List[Any]], List[Any]]
) -> List[Any]:
    """call(gradients) for the values that have some, and None for the others: whole numbers and booleans."""
    real = [i for i, value in enumerate(values) if value.dtype.is_floating or value.dtype.is_complex]
    of_real = iter(call(to_tensors([gradients[i] for i in real], what)) if real else [])
    return [next(of_real) if i in real else None for i in range(len(values))]


def without_gradient(values: Sequence[Any], gradients: Sequence[Any], what: str, op: ReduceOp) -> List[Any]:
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

    return of_real(values, gradients, what, zeros)
