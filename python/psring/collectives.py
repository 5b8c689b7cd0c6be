"""Collectives on memory, bytes and Python objects, without any framework.

The start_* functions take addresses and return an Operation; psring.torch and
psring.jax stand on them. The rest is for scripts without a framework, and works
on anything with Python's buffer interface: numpy's arrays, array.array.
"""

import builtins
import ctypes
import json
import numbers
import operator
import pickle
import zlib
from collections import Counter
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from . import _job, _lib
from .process_sets import ProcessSet, check_process_set, global_process_set


class ReduceOp(NamedTuple):
    """A reduction: `Sum`, `Average`, `Min`, `Max`, `Product`; Adasum is refused."""

    name: str
    code: int


Sum = ReduceOp("Sum", _lib.SUM)
Average = ReduceOp("Average", _lib.AVERAGE)
Min = ReduceOp("Min", _lib.MIN)
Max = ReduceOp("Max", _lib.MAX)
Product = ReduceOp("Product", _lib.PRODUCT)
Adasum = ReduceOp("Adasum", -1)

# By the format codes of Python's buffers, on Linux.
_FORMATS = {
    "B": _lib.UINT8, "b": _lib.INT8, "h": _lib.INT16, "i": _lib.INT32, "l": _lib.INT64,
    "q": _lib.INT64, "e": _lib.FLOAT16, "f": _lib.FLOAT32, "d": _lib.FLOAT64, "?": _lib.BOOL,
}  # fmt: skip


def number_of_dtype(dtype: Any) -> Optional[int]:
    """The library's number of a dtype of NumPy's or of ml_dtypes (bfloat16); None: it reduces none of them."""
    return _lib.BFLOAT16 if dtype.name == "bfloat16" else _FORMATS.get(dtype.char)


# The library remembers every name, and tells uses of one name apart.
_MOST_NAMES = 4096

_calls: "Counter[Tuple[str, ProcessSet]]" = Counter()
_lasting: "Counter[Tuple[str, ProcessSet]]" = Counter()


def auto_name(kind: str, process_set: ProcessSet = global_process_set) -> str:
    """A name for a call that was given none: the n-th of its kind among the set.

    So ranks must make their unnamed calls of one kind in the same order.
    """
    return _next_name(_calls, kind, process_set)


def call_name(name: Optional[str], kind: str, process_set: ProcessSet) -> str:
    """The name that a call was given, or else auto_name()."""
    check_process_set(process_set)
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name={name!r}: it is a text")
    return name or auto_name(kind, process_set)


def lasting_name(kind: str, process_set: ProcessSet = global_process_set) -> str:
    """The same for what makes many calls under its name, such as a model, and may live on over a join()."""
    return _next_name(_lasting, kind, process_set)


def _next_name(counters: "Counter[Tuple[str, ProcessSet]]", kind: str, process_set: ProcessSet) -> str:
    check_process_set(process_set)
    key = (kind, process_set)
    number = counters[key] % _MOST_NAMES
    counters[key] += 1
    return f"{name_among(kind, process_set)}.noname.{number}"


def name_among(kind: str, process_set: ProcessSet) -> str:
    """A name for calls among the set that come one after another, in the same order on all its ranks."""
    among = "" if process_set is global_process_set else str(process_set.ranks)
    if len(among) > 64:
        among = f"[{process_set.size()} ranks, {zlib.crc32(among.encode()):08x}]"
    return kind + among


def _forget_names() -> None:
    _calls.clear()
    _lasting.clear()


_job.at_init(_forget_names)


def op_code(op: Optional[ReduceOp]) -> int:
    if op is None:
        op = Average
    if not isinstance(op, ReduceOp):
        raise TypeError(f"op={op!r}: it is Sum, Average, Min, Max or Product")
    if op.code < 0:
        raise NotImplementedError("op=Adasum is not implemented: use Average, or Sum")
    return op.code


def _check_memory(name: str, address: int, size: int) -> None:
    """Raises where there is none to read."""
    if size and not address:
        raise TypeError(f"{name!r}: the tensor has no data, as one of torch's FakeTensorMode: pass one that has")


def _ranks(process_set: ProcessSet) -> Tuple[Any, int]:
    """A set of ranks as the library takes it."""
    check_process_set(process_set)
    return _lib.ranks_array(process_set._wire())


def _factor(what: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what}={value!r}: it is a number") from None


def _check_root(root_rank: Any, process_set: ProcessSet) -> int:
    try:
        root = operator.index(root_rank)
    except TypeError:
        raise TypeError(f"root_rank={root_rank!r}: it is a rank, a whole number") from None
    if root not in process_set.ranks:
        raise ValueError(f"root_rank={root} is not among the ranks {process_set.ranks}")
    return root


def start_allreduce(
    name: str, source: int, target: int, count: int, dtype: int, op: Optional[ReduceOp],
    prescale: float = 1.0, postscale: float = 1.0,
    process_set: ProcessSet = global_process_set, keep: Any = None,
) -> _lib.Operation:  # fmt: skip
    _job.current().note_collective(4 * count, reduces=True)
    code = op_code(op)
    scales = _factor("prescale_factor", prescale), _factor("postscale_factor", postscale)
    _check_memory(name, source and target, count)
    ranks = _ranks(process_set)
    number = _lib.library().psring_allreduce(
        _lib.encoded(name), source, target, count, dtype, code, *scales, *ranks
    )
    return _lib.Operation(number, (keep, ranks))


def start_allgather(
    name: str, source: int, size: int, tag: str,
    process_set: ProcessSet = global_process_set, keep: Any = None,
) -> _lib.Operation:  # fmt: skip
    _job.current().note_collective(size)
    _check_memory(name, source, size)
    ranks = _ranks(process_set)
    number = _lib.library().psring_allgather(_lib.encoded(name), source, size, tag.encode(), *ranks)
    return _lib.Operation(number, (keep, ranks))


def start_broadcast(
    name: str, data: int, size: int, root: int, tag: str,
    process_set: ProcessSet = global_process_set, keep: Any = None,
) -> _lib.Operation:  # fmt: skip
    check_process_set(process_set)
    root = _check_root(root, process_set)
    _job.current().note_collective(size)
    _check_memory(name, data, size)
    ranks = _ranks(process_set)
    number = _lib.library().psring_broadcast(_lib.encoded(name), data, size, root, tag.encode(), *ranks)
    return _lib.Operation(number, (keep, ranks))


def start_alltoall(
    name: str, source: int, sizes: Sequence[int], tag: str,
    process_set: ProcessSet = global_process_set, keep: Any = None,
) -> _lib.Operation:  # fmt: skip
    _job.current().note_collective(max(sizes, default=0))
    _check_memory(name, source, max(sizes, default=0))
    ranks = _ranks(process_set)
    array = (ctypes.c_int64 * len(sizes))(*sizes)
    number = _lib.library().psring_alltoall(_lib.encoded(name), source, array, tag.encode(), *ranks)
    return _lib.Operation(number, (keep, ranks, array))


def start_reducescatter(
    name: str, source: int, target: int, counts: Sequence[int], dtype: int,
    op: Optional[ReduceOp], prescale: float = 1.0, postscale: float = 1.0,
    process_set: ProcessSet = global_process_set, keep: Any = None,
) -> _lib.Operation:  # fmt: skip
    _job.current().note_collective(4 * max(counts, default=0), reduces=True)
    code = op_code(op)
    scales = _factor("prescale_factor", prescale), _factor("postscale_factor", postscale)
    _check_memory(name, source, max(counts, default=0))
    ranks = _ranks(process_set)
    array = (ctypes.c_int64 * len(counts))(*counts)
    number = _lib.library().psring_reducescatter(
        _lib.encoded(name), source, target, array, dtype, code, *scales, *ranks
    )
    return _lib.Operation(number, (keep, ranks, array))


def barrier(process_set: ProcessSet = global_process_set, name: Optional[str] = None) -> None:
    """Returns when every rank of the set has called it."""
    _job.current()
    ranks = _ranks(process_set)
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
    return _lib.Operation(_lib.library().psring_join_uneven())


def last_to_join(operation: "_lib.Operation") -> int:
    operation.wait()
    # Ranks with data have made calls that the others did not count. The library has, for each name: a rank
    # that had joined took part in them. So names that start anew mean the same calls on all ranks.
    _calls.clear()
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
    check_process_set(process_set)
    root_rank = _check_root(root_rank, process_set)
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


def _writable_copy(value: Any) -> Any:
    if hasattr(value, "numpy"):  # a tensor of another framework's
        value = value.numpy()
    if not hasattr(value, "dtype"):
        raise TypeError(
            f"sum() and mean() take a number, a tensor or an array, not {type(value).__name__}: call them for each value"
        )
    copy = value.copy()
    try:
        if not memoryview(copy).readonly:
            return copy
    except BufferError:  # as in _view_in_place()
        pass
    import numpy  # an array of JAX's

    return numpy.array(copy)


def sum(value: Any, process_set: ProcessSet = global_process_set) -> Any:
    """The sum over all ranks of a number, or of a buffer's elements in a copy.

    Booleans are counted.
    """
    if getattr(value, "dtype", None) == bool:
        value = value.astype("int64")
    if isinstance(value, numbers.Real):
        return _reduce_number(value, Sum, process_set)
    return allreduce_(_writable_copy(value), Sum, process_set=process_set)


def mean(value: Any, process_set: ProcessSet = global_process_set) -> Any:
    """The mean over all ranks of a number, or of a buffer's elements in a copy."""
    if isinstance(value, numbers.Real):
        return _reduce_number(value, Average, process_set)
    return allreduce_(_writable_copy(value), Average, process_set=process_set)
