"""Collectives on pytrees."""

from typing import Any, Callable, List, Optional

import jax
import numpy as np

from .. import collectives as memory
from .._lib import BFLOAT16
from ..collectives import Average, ReduceOp, auto_name
from ..process_sets import ProcessSet, global_process_set
from ._arrays import call_on_host, empty, on_host, traced


def _dtype(array: np.ndarray) -> int:
    if array.dtype.name == "bfloat16":
        return BFLOAT16
    number = memory._FORMATS.get(array.dtype.char)
    if number is None:
        raise TypeError(f"allreduce of {array.dtype} is not supported")
    return number


def _reduce_all(arrays: List[Any], op: ReduceOp, name: str, process_set: ProcessSet) -> List[np.ndarray]:
    operations, results = [], []
    for index, array in enumerate(arrays):
        source = on_host(array)
        if op is Average and source.dtype.kind in "iub":
            raise TypeError(f"op=Average of {source.dtype} has no exact result: use Sum, or convert to floats")
        result = empty(source.shape, source.dtype)
        operations.append(
            memory.start_allreduce(
                f"{name}.{index}", source.ctypes.data, result.ctypes.data, source.size, _dtype(source), op,
                process_set=process_set, keep=(source, result),
            )  # fmt: skip
        )
        results.append(result)
    for operation in operations:
        operation.finish()
    return results


def _broadcast_all(arrays: List[Any], root_rank: int, name: str, process_set: ProcessSet) -> List[np.ndarray]:
    operations, results = [], []
    for index, array in enumerate(arrays):
        source = on_host(array)
        result = empty(source.shape, source.dtype)
        result[...] = source
        operations.append(
            memory.start_broadcast(
                f"{name}.{index}", result.ctypes.data, result.nbytes, root_rank,
                f"{result.dtype}{list(result.shape)}", process_set, result,
            )  # fmt: skip
        )
        results.append(result)
    for operation in operations:
        operation.finish()
    return results


def _namer(kind: str, name: Optional[str], leaves: List[Any], process_set: ProcessSet) -> Callable[[], str]:
    """Names a call when it runs: one rank may trace a function again where another does not. Those
    inside jit run in the order of the program, but at other times than those outside: they have
    numbers of their own."""
    if name is not None:
        return lambda: name
    kind = kind + ".in_jit" if traced(leaves) else kind
    return lambda: auto_name(kind, process_set)


def allreduce(
    tree: Any, op: ReduceOp = Average, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The reduction of every array of a pytree over all ranks, by default the mean.

    Not differentiable: reduce gradients, not what they are taken of.
    """
    leaves, structure = jax.tree_util.tree_flatten(tree)
    named = _namer("jax.allreduce", name, leaves, process_set)
    if not leaves:
        return tree
    out = call_on_host(lambda arrays: _reduce_all(arrays, op, named(), process_set), leaves)
    return jax.tree_util.tree_unflatten(structure, out)


def broadcast(
    tree: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's arrays, for every array of a pytree."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    named = _namer("jax.broadcast", name, leaves, process_set)
    if not leaves:
        return tree
    out = call_on_host(lambda arrays: _broadcast_all(arrays, root_rank, named(), process_set), leaves)
    return jax.tree_util.tree_unflatten(structure, out)
