"""Collectives on bytes, Python objects and buffers, without any framework.

They work on anything with Python's buffer interface: numpy's arrays, array.array.
"""

import builtins
import ctypes
import json
import numbers
import pickle
from typing import Any, List, Optional

from . import _job, _lib
# psring.torch and the others take all of these from here.
from ._names import auto_name, call_name, forget_calls, lasting_name, name_among
from ._starts import (
    _FORMATS, Adasum, Average, Max, Min, Product, ReduceOp, Sum, check_root, number_of_dtype, op_code, ranks_of,
    start_allgather, start_allreduce, start_alltoall, start_broadcast, start_reducescatter,
)  # fmt: skip
from .process_sets import ProcessSet, global_process_set


def barrier(process_set: ProcessSet = global_process_set, name: Optional[str] = None) -> None:
    """Returns when every rank of the set has called it."""
    _job.current()
    ranks = ranks_of(process_set)
    name = call_name(name, "barrier", process_set)
    number = _lib.library().psring_barrier(_lib.encoded(name), *ranks)
    _lib.Operation(number, ranks).finish()


def join() -> int:
    """Says that this rank has no more data, and waits until every rank has said so.

    Until then it takes part with zeros in the others' barriers, and in their allreduces and
    reducescatters that sum or average over all ranks; their other collectives fail meanwhile.
    Returns the last rank to call it, whose model and optimizer have seen all steps:
    broadcast both from that one. psring.torch.join takes part in optimizers' steps, too.
    """
    return last_to_join(start_join())


def start_join() -> "_lib.Operation":
    _job.current()
    _job.before_join.come()
    return _lib.Operation(_lib.library().psring_join_uneven())


def last_to_join(operation: "_lib.Operation") -> int:
    operation.wait()
    # Ranks with data have made calls that the others did not count. The library has, for each name: a rank
    # that had joined took part in them. So names that start anew mean the same calls on all ranks.
    forget_calls()
    last = ctypes.c_int32()
    operation.result(ctypes.addressof(last), 4)
    operation.release()
    return last.value


# ---- Bytes and objects -------------------------------------------------------


def _buffer(data: Any) -> Any:
    """A ctypes array over a buffer, or over a copy where it is read-only."""
    view = memoryview(data)
    if "O" in view.format:  # else other processes would take this one's addresses for their own
        raise TypeError(
            "the elements are Python's objects, whose memory no other process has: use broadcast_object() or "
            "allgather_object()"
        )
    if view.nbytes == 0:
        return (ctypes.c_char * 1)()
    view = view.cast("B")
    if view.readonly:
        return (ctypes.c_char * view.nbytes).from_buffer_copy(view)
    return (ctypes.c_char * view.nbytes).from_buffer(view)


def allgather_bytes(
    data: bytes, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[bytes]:
    """Everybody's bytes, by rank of the set, of any sizes."""
    return _allgather(data, call_name(name, "allgather_bytes", process_set), "bytes", process_set)


def _allgather(data: Any, name: str, tag: str, process_set: ProcessSet) -> List[bytes]:
    memory = _buffer(data)
    operation = start_allgather(name, ctypes.addressof(memory), memoryview(data).nbytes, tag, process_set, memory)
    operation.wait()
    sizes = operation.sizes(process_set.size())
    total = builtins.sum(sizes)
    out = ctypes.create_string_buffer(max(total, 1))
    operation.result(ctypes.addressof(out), total)
    operation.release()
    view, parts, begin = memoryview(out).cast("B"), [], 0
    for size in sizes:
        parts.append(bytes(view[begin : begin + size]))
        begin += size
    return parts


def broadcast_bytes(
    data: Optional[bytes], root_rank: int = 0, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> bytes:  # fmt: skip
    """The root's bytes; the others need not know how many."""
    root_rank = check_root(root_rank, process_set)
    mine = data if data is not None and _job.rank() == root_rank else b""
    name = call_name(name, "broadcast_bytes", process_set)
    parts = _allgather(mine, name, f"bytes of root {root_rank}", process_set)
    return parts[process_set.ranks.index(root_rank)]


def _pickle(value: Any) -> bytes:
    try:
        import cloudpickle  # type: ignore[import-not-found]  # takes lambdas, too
    except ImportError:
        return pickle.dumps(value, protocol=4)
    return cloudpickle.dumps(value)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:  # fmt: skip
    """The root's object, pickled on its way; the root gets its own back.

    Unpickling runs whatever code the root put in: call it only where you trust all ranks.
    """
    name = call_name(name, "broadcast_object", process_set)
    mine = _job.rank() == root_rank
    data = broadcast_bytes(_pickle(obj) if mine else None, root_rank, name, process_set)
    return obj if mine else pickle.loads(data)


def broadcast_json(
    value: Any, root_rank: int = 0, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:  # fmt: skip
    """The root's numbers and texts, and lists and dicts of them, on all ranks.

    psring's own calls use it in place of broadcast_object: JSON runs no code of another rank.
    """
    name = call_name(name, "broadcast_json", process_set)
    text = json.dumps(value).encode() if _job.rank() == root_rank else None
    return json.loads(broadcast_bytes(text, root_rank, name, process_set))


def allgather_object(
    obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[Any]:
    """Everybody's object, by rank of the set, pickled on their way.

    Unpickling runs whatever code a rank put in: call it only where you trust all ranks.
    """
    name = call_name(name, "allgather_object", process_set)
    return [pickle.loads(data) for data in allgather_bytes(_pickle(obj), name, process_set)]


def agree(mine: List[str], name: str, process_set: ProcessSet = global_process_set) -> None:
    """Raises the same error on all ranks of the set where their lists differ.

    Digests travel first, and the texts only where those differ; the error names
    two ranks and their first difference.
    """
    import hashlib

    text = json.dumps(mine).encode()
    digests = allgather_bytes(hashlib.sha256(text).digest(), name, process_set)
    others = [index for index, digest in enumerate(digests) if digest != digests[0]]
    if not others:
        return
    lists = [json.loads(text) for text in allgather_bytes(text, name + ".text", process_set)]
    first, other = lists[0], lists[others[0]]
    longer = max(len(first), len(other))
    here, there = next(
        pair
        for pair in (
            (first[i] if i < len(first) else "nothing", other[i] if i < len(other) else "nothing")
            for i in range(longer)
        )
        if pair[0] != pair[1]
    )
    ranks = process_set.ranks
    raise _lib.InvalidArgumentError(
        f"ranks {ranks[0]} and {ranks[others[0]]} differ: {here} on rank {ranks[0]}, "
        f"{there} on rank {ranks[others[0]]}. All ranks must have the same model and settings"
    )


# ---- Buffers -----------------------------------------------------------------


def _view_in_place(array: Any, what: str) -> memoryview:
    try:
        view = memoryview(array)
    except (BufferError, ValueError) as error:  # of an array of JAX's on a GPU, or of bfloat16
        raise ValueError(
            f"{what} in place cannot use the memory of this {type(array).__name__}: pass an array of NumPy's, of "
            f"float32, say ({error})"
        ) from None
    if view.readonly or not view.c_contiguous:
        raise ValueError(f"{what} in place needs a writable, contiguous buffer: pass a copy")
    return view


def allreduce_async_(
    array: Any, op: Optional[ReduceOp] = None, name: Optional[str] = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> _lib.Operation:  # fmt: skip
    """Starts the reduction of a writable, contiguous buffer, in place."""
    view = _view_in_place(array, "allreduce")
    dtype = _FORMATS.get(view.format)
    if dtype is None:
        raise TypeError(f"allreduce of elements {view.format!r}: it takes {', '.join(_FORMATS)}")
    if op in (None, Average) and view.format not in "efd":
        raise TypeError("op=Average of integers has no exact result: use Sum, or convert to floats")
    memory = _buffer(array)
    address = ctypes.addressof(memory)
    return start_allreduce(
        call_name(name, "allreduce_buffer", process_set), address, address,
        view.nbytes // view.itemsize, dtype, op, prescale_factor, postscale_factor,
        process_set, memory,
    )  # fmt: skip


def allreduce_(array: Any, op: Optional[ReduceOp] = None, name: Optional[str] = None, **more: Any) -> Any:
    """Reduces a buffer in place over all ranks, and returns it."""
    allreduce_async_(array, op, name, **more).finish()
    return array


def broadcast_(
    array: Any, root_rank: int = 0, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:  # fmt: skip
    """Makes a writable buffer's contents those of the root's, and returns it."""
    view = _view_in_place(array, "broadcast")
    memory = _buffer(array)
    start_broadcast(
        call_name(name, "broadcast_buffer", process_set), ctypes.addressof(memory),
        view.nbytes, root_rank, f"{view.format}{list(view.shape or ())}", process_set, memory,
    ).finish()  # fmt: skip
    return array


def _reduce_number(value: Any, op: ReduceOp, process_set: ProcessSet) -> Any:
    whole = isinstance(value, numbers.Integral) and op is not Average
    if whole and not -(2**63) <= value < 2**63:
        raise OverflowError(f"{value} does not fit 64 bits: pass float({value})")
    memory = ctypes.c_int64(int(value)) if whole else ctypes.c_double(float(value))
    address = ctypes.addressof(memory)
    start_allreduce(
        auto_name("number", process_set), address, address, 1,
        _lib.INT64 if whole else _lib.FLOAT64, op, process_set=process_set, keep=memory,
    ).finish()  # fmt: skip
    return memory.value


def _no_value_yet(value: Any) -> TypeError:
    """Of what a program computes when it runs."""
    return TypeError(
        f"sum() and mean() take values, and a {type(value).__name__} has none yet: call them outside of tf.function and jit, "
        "or use allreduce()"
    )


def _writable_copy(value: Any) -> Any:
    if hasattr(value, "detach"):  # a tensor of torch's: numpy() is none of one that autograd follows, or of bfloat16
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    if hasattr(value, "numpy"):  # a tensor of another framework's
        value = value.numpy()
    if not hasattr(value, "dtype"):
        raise TypeError(
            f"sum() and mean() take a number, a tensor or an array, not {type(value).__name__}: call them for each value"
        )
    if not hasattr(value, "copy"):  # TensorFlow's
        raise _no_value_yet(value)
    copy = value.copy()
    if copy.dtype.name == "bfloat16":  # of ml_dtypes, without a buffer
        copy = copy.astype("float32")
    try:
        if not memoryview(copy).readonly:
            return copy
    except BufferError:  # as in _view_in_place()
        pass
    except TypeError:  # JAX's
        raise _no_value_yet(value) from None
    import numpy  # an array of JAX's

    return numpy.array(copy)


def sum(value: Any, process_set: ProcessSet = global_process_set) -> Any:
    """The sum over all ranks of a number, or of a buffer's elements in a copy.

    Booleans are counted. Of bfloat16 it is float32.
    """
    if getattr(value, "dtype", None) == bool and hasattr(value, "astype"):  # a number of NumPy's, too
        value = value.astype("int64")
    if isinstance(value, numbers.Real):
        return _reduce_number(value, Sum, process_set)
    copy = _writable_copy(value)
    if copy.dtype == bool:  # of a tensor, whose own dtype is another framework's
        copy = copy.astype("int64")
    return allreduce_(copy, Sum, process_set=process_set)


def mean(value: Any, process_set: ProcessSet = global_process_set) -> Any:
    """The mean over all ranks of a number, or of a buffer's elements in a copy. Of bfloat16 it is float32."""
    if isinstance(value, numbers.Real):
        return _reduce_number(value, Average, process_set)
    return allreduce_(_writable_copy(value), Average, process_set=process_set)
