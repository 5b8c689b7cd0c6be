"""Starts the library's collectives on memory: reductions, dtypes, and what is checked before each call.

The functions take addresses and return an Operation. What lies in the memory stays where it is
until that has ended, for which `keep` holds it.
"""

import ctypes
import operator
from typing import Any, NamedTuple, Optional, Sequence, Tuple

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


def ranks_of(process_set: ProcessSet) -> Tuple[Any, int]:
    """A set of ranks as the library takes it."""
    check_process_set(process_set)
    return _lib.ranks_array(process_set._wire())


def _factor(what: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what}={value!r}: it is a number") from None


def check_root(root_rank: Any, process_set: ProcessSet) -> int:
    check_process_set(process_set)
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
    ranks = ranks_of(process_set)
    number = _lib.library().psring_allreduce(
        _lib.encoded(name), source, target, count, dtype, code, *scales, *ranks
    )
    return _lib.Operation(number, (keep, ranks))


# Where what comes is put, if it has that size: see psring_allgather.
Place = Tuple[Optional[int], int]


def start_allgather(
    name: str, source: int, size: int, tag: str,
    process_set: ProcessSet = global_process_set, keep: Any = None, place: Place = (None, 0),
) -> _lib.Operation:  # fmt: skip
    _job.current().note_collective(size)
    _check_memory(name, source, size)
    ranks = ranks_of(process_set)
    number = _lib.library().psring_allgather(_lib.encoded(name), source, size, tag.encode(), *place, *ranks)
    return _lib.Operation(number, (keep, ranks))


def start_broadcast(
    name: str, data: int, size: int, root: int, tag: str,
    process_set: ProcessSet = global_process_set, keep: Any = None,
) -> _lib.Operation:  # fmt: skip
    root = check_root(root, process_set)
    _job.current().note_collective(size)
    _check_memory(name, data, size)
    ranks = ranks_of(process_set)
    number = _lib.library().psring_broadcast(_lib.encoded(name), data, size, root, tag.encode(), *ranks)
    return _lib.Operation(number, (keep, ranks))


def start_alltoall(
    name: str, source: int, sizes: Sequence[int], tag: str,
    process_set: ProcessSet = global_process_set, keep: Any = None, place: Place = (None, 0),
) -> _lib.Operation:  # fmt: skip
    _job.current().note_collective(max(sizes, default=0))
    _check_memory(name, source, max(sizes, default=0))
    ranks = ranks_of(process_set)
    array = (ctypes.c_int64 * len(sizes))(*sizes)
    number = _lib.library().psring_alltoall(_lib.encoded(name), source, array, tag.encode(), *place, *ranks)
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
    ranks = ranks_of(process_set)
    array = (ctypes.c_int64 * len(counts))(*counts)
    number = _lib.library().psring_reducescatter(
        _lib.encoded(name), source, target, array, dtype, code, *scales, *ranks
    )
    return _lib.Operation(number, (keep, ranks, array))
