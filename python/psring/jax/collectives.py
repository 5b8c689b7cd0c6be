"""psring for JAX: allreduces of pytrees, outside of jit and inside.

    import psring.jax as ps

    ps.init()
    params = ps.broadcast(params)
    grads = ps.allreduce(jax.grad(loss)(params, batch))

Inside jit the call is an ordered host callback, so all ranks make their calls in
the program's order. Arrays are copied through the host's memory. Not inside vmap,
pmap or a scan whose length differs between ranks.
"""

from typing import Any, List, Optional

import jax
import numpy as np
from jax.experimental import io_callback

from . import collectives as memory
from ._job import init, is_initialized, local_rank, local_size, rank, shutdown, size
from ._lib import BFLOAT16, PsringError
from .collectives import (
    Average,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    allgather_object,
    auto_name,
    barrier,
    broadcast_object,
)
from ._metrics import log
from .process_sets import ProcessSet, global_process_set


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
        result = np.array(array, order="C", copy=True)
        if op is Average and result.dtype.kind in "iub":
            raise TypeError(f"op=Average of {result.dtype} has no exact result: use Sum, or convert to floats")
        address = result.ctypes.data
        operations.append(
            memory.start_allreduce(
                f"{name}.{index}", address, address, result.size, _dtype(result), op,
                process_set=process_set, keep=result,
            )  # fmt: skip
        )
        results.append(result)
    for operation in operations:
        operation.finish()
    return results


def _broadcast_all(arrays: List[Any], root_rank: int, name: str, process_set: ProcessSet) -> List[np.ndarray]:
    operations, results = [], []
    for index, array in enumerate(arrays):
        result = np.array(array, order="C", copy=True)
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


def _on_host(call: Any, leaves: List[Any]) -> List[Any]:
    """call(arrays) at once, or as an ordered callback where leaves are traced."""
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return [jax.numpy.asarray(array) for array in call(leaves)]
    shapes = [jax.ShapeDtypeStruct(jax.numpy.shape(leaf), jax.numpy.result_type(leaf)) for leaf in leaves]
    return io_callback(lambda *arrays: call(list(arrays)), shapes, *leaves, ordered=True)


def allreduce(
    tree: Any, op: ReduceOp = Average, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The reduction of every array of a pytree over all ranks, by default the mean.

    Not differentiable: reduce gradients, not what they are taken of.
    """
    leaves, structure = jax.tree_util.tree_flatten(tree)
    name = name or auto_name("jax.allreduce", process_set)
    if not leaves:
        return tree
    out = _on_host(lambda arrays: _reduce_all(arrays, op, name, process_set), leaves)
    return jax.tree_util.tree_unflatten(structure, out)


def broadcast(
    tree: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's arrays, for every array of a pytree."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    name = name or auto_name("jax.broadcast", process_set)
    if not leaves:
        return tree
    out = _on_host(lambda arrays: _broadcast_all(arrays, root_rank, name, process_set), leaves)
    return jax.tree_util.tree_unflatten(structure, out)


__all__ = [
    "Average", "Max", "Min", "Product", "ProcessSet", "PsringError", "Sum", "allgather_object", "allreduce",
    "barrier", "broadcast", "broadcast_object", "global_process_set", "init", "is_initialized", "local_rank",
    "local_size", "log", "rank", "shutdown", "size",
]  # fmt: skip
