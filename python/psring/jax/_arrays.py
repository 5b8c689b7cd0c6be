"""JAX's arrays and NumPy's, without copies where both are memory of the host."""

from typing import Any, Callable, List, Optional, Sequence

import jax
import numpy as np
from jax.experimental import io_callback

from .. import _job, _lib

# XLA takes memory of others as it is where it is aligned so.
_ALIGNMENT = 64


def empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """A new array that JAX can take over without a copy."""
    dtype = np.dtype(dtype)
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size].view(dtype).reshape(shape)


def on_host(array: Any) -> np.ndarray:
    """An array's elements, in order: of the CPU's arrays where they lie."""
    return np.asarray(array, order="C")


def is_key(value: Any) -> bool:
    """Whether it is a key of jax.random.key(), or an array of such, which has no elements of its own."""
    return isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)


def to_jax(array: np.ndarray) -> jax.Array:
    """JAX's array of one that nobody writes to any more. Errors: integers that JAX would cut off."""
    if array.dtype in (np.int64, np.uint64) and array.size and not jax.config.jax_enable_x64:
        most = np.iinfo(np.int32 if array.dtype == np.int64 else np.uint32)
        if array.max() > most.max or array.min() < most.min:
            raise OverflowError(
                f"a result of {array.dtype} does not fit JAX's {most.dtype}: pass floats, or set jax_enable_x64"
            )
    if jax.default_backend() == "cpu":
        try:
            return jax.dlpack.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError):
            pass  # DLPack has no bfloat16 of NumPy's, say.
    return jax.numpy.asarray(array)


def traced(values: Sequence[Any]) -> bool:
    """Whether this is inside jit, or values are not known yet: what is called now, a program calls
    each time that it runs, also with arrays that are constants to it."""
    tracer = jax.core.Tracer
    return any(isinstance(value, tracer) for value in values) or isinstance(jax.numpy.zeros(()), tracer)


def _refuse_parts_of_devices() -> None:
    """In shard_map and pmap, JAX calls back for one device and gives all of them its results."""
    mesh_now = getattr(jax.sharding, "get_abstract_mesh", None)
    mesh = mesh_now() if mesh_now else None
    if mesh is not None and getattr(mesh, "manual_axes", None) and mesh.size > 1:  # of JAX 0.6 and newer
        raise NotImplementedError(
            f"rank {_job.rank()}: psring.jax cannot be called within shard_map or pmap over {mesh.size} devices: reduce "
            "over the devices there (jax.lax.pmean), and call psring outside, on the result"
        )


def call_on_host(
    call: Callable[[List[Any]], List[np.ndarray]],
    arguments: List[Any],
    like: Optional[List[Any]] = None,
    in_jit: Optional[bool] = None,
) -> List[Any]:
    """call(arguments) at once, or as an ordered callback where they are traced: `in_jit`, where the
    caller has asked already.

    Its results have the shapes and dtypes of `like`, by default of the arguments.
    """
    if not (traced(arguments) if in_jit is None else in_jit):
        return [to_jax(array) for array in call(arguments)]
    _refuse_parts_of_devices()
    like = arguments if like is None else like
    shapes = [jax.ShapeDtypeStruct(jax.numpy.shape(leaf), jax.numpy.result_type(leaf)) for leaf in like]
    return io_callback(lambda *arrays: call(list(arrays)), shapes, *arguments, ordered=True)


def wait_for_callbacks() -> None:
    """JAX returns from a jitted function before its callbacks have run."""
    try:
        jax.effects_barrier()
    except RuntimeError as error:
        known = _lib.failure()
        raise _lib.JobFailedError(known) if known else _lib.PsringError(f"a call within jit failed: {error}") from error
