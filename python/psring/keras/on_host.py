"""From a program of Keras's backend to the host, and back."""

import contextlib
from typing import Any, Callable, List, Optional

import keras
import numpy as np

from .._packs import Kind

NO_XLA = (
    "psring.keras: XLA cannot call psring on TensorFlow: model.compile(..., jit_compile=False), and tf.function "
    "without jit_compile"
)


def supported_backend() -> str:
    """Keras's. Errors: another one than psring supports."""
    backend = keras.backend.backend()
    if backend not in ("torch", "jax", "tensorflow"):
        raise NotImplementedError(f"psring.keras does not support Keras' backend {backend!r}")
    return str(backend)


def kind_of(value: Any) -> Kind:
    """Of a dense tensor, for Packs."""
    if getattr(value.shape, "rank", 0) is None:  # TensorFlow's, where it is not known
        return None
    shape = tuple(value.shape)
    if any(size is None for size in shape):
        return None
    return keras.backend.standardize_dtype(value.dtype), shape


def packing_ops() -> Any:
    """What Packs works with: under torch, torch itself. keras.ops would take longer than packing saves."""
    if keras.backend.backend() != "torch":
        return keras.ops
    import torch

    return torch


def in_order(
    call: Callable[[List[np.ndarray]], List[np.ndarray]], tensors: List[Any], like: List[Any]
) -> List[Any]:
    """On TensorFlow, as on_host(): in the order of the program's calls, also of those of psring.tensorflow."""
    from ..tensorflow import _host

    _host.refuse_xla(NO_XLA)
    return _host.call_on_host(call, tensors, [(value.dtype, value.shape) for value in like])


def _copies_for_jax(arrays: List[np.ndarray]) -> List[np.ndarray]:
    from ..jax._arrays import empty

    copies = [empty(array.shape, array.dtype) for array in arrays]
    for copy, array in zip(copies, arrays):
        copy[...] = array
    return copies


def on_host(
    call: Callable[[List[np.ndarray]], List[np.ndarray]], arguments: List[Any], like: List[Any]
) -> List[Any]:
    """call(arguments) as the backend's program comes to it: in a compiled one, each time that it
    runs. Results have the shapes and dtypes of `like`; call() may write into them later."""
    backend = supported_backend()
    if backend == "torch":
        import torch

        results = call([argument.detach().cpu().numpy() for argument in arguments])
        return [torch.from_numpy(result) for result in results]  # assign() copies them
    if backend == "jax":
        from ..jax._arrays import call_on_host

        return call_on_host(lambda arrays: _copies_for_jax(call(arrays)), arguments, like)
    import tensorflow as tf

    dense = [tf.convert_to_tensor(argument) for argument in arguments]  # an embedding's gradient is sparse
    return in_order(lambda arrays: [np.array(result) for result in call(arrays)], dense, like)


def values_now(variables: List[Any]) -> Optional[List[np.ndarray]]:
    """The values of variables, also where TensorFlow or JAX traces a program that has them. None where Keras has taken
    them from the variables, into the arguments of a program of JAX's."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        own = [variable._value for variable in variables]  # not those of the program
        if any(value is None or isinstance(value, jax.core.Tracer) for value in own):
            return None
        return [np.array(value) for value in own]
    if backend == "tensorflow":
        import tensorflow as tf

        scope: Any = tf.init_scope()
    else:
        scope = contextlib.nullcontext()
    with scope:
        return [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]


def await_host_calls() -> None:
    """JAX's compiled steps return before their host calls have run."""
    if keras.backend.backend() == "jax":
        import jax

        jax.effects_barrier()
