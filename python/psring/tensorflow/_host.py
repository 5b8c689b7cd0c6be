"""From TensorFlow to the host, and back: at once, or within a tf.function."""

import contextvars
import functools
from typing import Any, Callable, List, Optional, Sequence, Tuple, TypeVar

import numpy as np
import tensorflow as tf

from .. import _job, _lib

# Of a result: its dtype, and its shape with None for what is known only when the program runs; None: its rank, too.
Like = Tuple[Any, Optional[Sequence[Optional[int]]]]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def is_variable(value: Any) -> bool:
    """Of TensorFlow's or of Keras's."""
    return hasattr(value, "assign") and hasattr(value, "trainable")


def unconverted(function: _Function) -> _Function:
    """Keeps AutoGraph, which converts what tf.function calls, from psring's code: that takes it seconds, and it keeps
    what it has converted, with the variables."""
    return tf.autograph.experimental.do_not_convert(function)  # type: ignore[no-any-return]


def in_function() -> bool:
    """Whether tf.function traces: what is called now, its program calls each time that it runs."""
    return not tf.executing_eagerly()


def at_once(function: _Function) -> _Function:
    """For what is no part of a tf.function's program, which would call it when it is traced, and never again."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if in_function():
            raise NotImplementedError(
                f"rank {_job.rank()}: {function.__name__}() would run when tf.function traces, not each time that its program "
                "runs: call it outside of tf.function"
            )
        return function(*args, **kwargs)

    return unconverted(call)  # type: ignore[return-value]


def refuse_xla(remedy: str) -> None:
    """In a program that XLA compiles."""
    from tensorflow.python.ops import control_flow_util

    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        raise ValueError(f"rank {_job.rank()}: {remedy}")


def _refuse_replicas() -> None:
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        raise NotImplementedError(
            f"rank {_job.rank()}: psring.tensorflow is called within a tf.distribute strategy of {replicas} replicas: "
            "start a process for each GPU, with no strategy (psring run -n, tf.config.set_visible_devices)"
        )


def _refuse_sessions() -> None:
    if not hasattr(tf.compat.v1.get_default_graph(), "capture"):
        raise NotImplementedError(
            f"rank {_job.rank()}: psring.tensorflow is called within a tf.Graph, which a session of TensorFlow 1 runs: use "
            "tf.function, and leave eager execution on"
        )


@functools.lru_cache(maxsize=None)
def _resource() -> Any:
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.Variable(0.0, trainable=False, name="psring_order")


# That of the calls whose gradients are built: the gradient of a branch or a loop has what this has, and nothing else.
_of_forward: "contextvars.ContextVar[Any]" = contextvars.ContextVar("of_forward", default=None)


def _order() -> Any:
    """A resource that all calls of a program take, so TensorFlow makes them in the program's order, also those within
    branches, loops and functions of its own: it does not order these by their being stateful once they use a variable."""
    forward = _of_forward.get()
    return tf.compat.v1.get_default_graph().capture(_resource().handle if forward is None else forward)


def _in_branch_or_loop() -> bool:
    from tensorflow.python.ops import control_flow_v2_func_graphs as of

    return isinstance(tf.compat.v1.get_default_graph(), (of.CondBranchFuncGraph, of.WhileBodyFuncGraph))


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """tf.custom_gradient of a function that makes calls on the host, as its gradient does."""

    @tf.custom_gradient
    def ordered(*values: Any) -> Any:
        results, gradient = function(*values)
        forward = _order() if in_function() else None
        # Of such ones, TensorFlow does not keep the order on all ranks.
        second = forward is not None and _of_forward.get() is not None and _in_branch_or_loop()

        def gradient_in_order(*gradients: Any) -> Any:
            if second:
                raise NotImplementedError(
                    f"rank {_job.rank()}: psring.tensorflow: a second gradient of a call within a branch or a loop of "
                    "tf.function: call outside of it, or tf.stop_gradient() the first gradient"
                )
            token = _of_forward.set(forward)
            try:
                return gradient(*gradients)
            finally:
                _of_forward.reset(token)

        return results, gradient_in_order

    return ordered  # type: ignore[no-any-return]


def call_on_host(
    call: Callable[[List[np.ndarray]], List[np.ndarray]], tensors: Sequence[Any], like: Sequence[Like]
) -> List[Any]:
    """call(arrays) at once, or as the program of a tf.function comes to it, after the program's calls before it.

    The arrays are the call's own: it may write into them, and return them.
    """
    _refuse_replicas()

    def on_arrays(*values: Any) -> List[np.ndarray]:
        return call([np.asarray(value.numpy()) for value in values])

    if not in_function():
        return [tf.convert_to_tensor(result) for result in on_arrays(*tensors)]
    _refuse_sessions()
    refuse_xla(
        "psring.tensorflow cannot be called by XLA: use tf.function without jit_compile, and for model.fit() "
        "model.compile(..., jit_compile=False)"
    )

    def within(_: Any, *values: Any) -> List[np.ndarray]:
        with _lib.ending_at_interrupts():
            return on_arrays(*values)

    results = tf.py_function(within, [_order(), *tensors], [dtype for dtype, _ in like])
    if not like:
        return []  # of no results it returns the operation
    for result, (_, shape) in zip(results, like):
        result.set_shape(shape)
    return list(results)
