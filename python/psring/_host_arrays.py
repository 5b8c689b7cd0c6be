"""Collectives on arrays of NumPy's and of ml_dtypes, several at once."""

import functools
import zlib
from typing import Iterable, List, NamedTuple, Tuple

import numpy as np

from . import _job
from . import collectives as memory
from ._packs import WORTH_PACKING, Comparison, Kind, Packs
from .collectives import ReduceOp, Sum
from .process_sets import ProcessSet


def crc32(arrays: Iterable[np.ndarray]) -> int:
    """Of their elements' bytes, one array after the other."""
    crc = 0
    for array in arrays:
        crc = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, crc)
    return crc


class Scales(NamedTuple):
    """The result is after * reduction(before * array)."""

    before: float = 1.0
    after: float = 1.0


def number_of_dtype(dtype: np.dtype) -> int:
    number = memory.number_of_dtype(dtype)
    if number is None:
        raise TypeError(f"rank {_job.rank()}: {dtype} is not reduced: convert it, to int64 or float64 say")
    return number


def reduce_numpy(
    arrays: List[np.ndarray], op: ReduceOp, name: str, process_set: ProcessSet, scales: Scales = Scales()
) -> List[np.ndarray]:
    """In copies."""
    results = [np.array(array, order="C", copy=True) for array in arrays]
    operations = [
        memory.start_allreduce(
            f"{name}.{i}", result.ctypes.data, result.ctypes.data, result.size, number_of_dtype(result.dtype), op,
            *scales, process_set, result,
        )
        for i, result in enumerate(results)
    ]  # fmt: skip
    for operation in operations:
        operation.finish()
    return results


@functools.lru_cache(maxsize=64)
def _packs(kinds: Tuple[Kind, ...]) -> Tuple[Packs, Comparison]:
    """The same in each step."""
    packs = Packs(kinds)
    return packs, Comparison(packs)


def reduce_in_packs(
    arrays: List[np.ndarray], op: ReduceOp, name: str, process_set: ProcessSet, scales: Scales = Scales()
) -> List[np.ndarray]:
    """As reduce_numpy(), but many small arrays of one dtype travel as one. Errors, on all ranks: these differ."""
    worth = len(arrays) >= WORTH_PACKING
    packs, comparison = _packs(tuple((array.dtype.name, array.shape) if worth else None for array in arrays))
    if len(packs.members) < len(arrays):
        [sums] = reduce_numpy([np.array(comparison.numbers)], Sum, name + ".packs", process_set)
        comparison.check(sums, name, process_set)
    reduced = reduce_numpy(packs.pack(arrays, np), op, name, process_set, scales)
    return packs.unpack(reduced, np)


def broadcast_in_place(arrays: List[np.ndarray], root_rank: int, name: str, process_set: ProcessSet) -> None:
    """Contiguous arrays become the root's, each by a collective of its own."""
    operations = [
        memory.start_broadcast(
            f"{name}.{i}", array.ctypes.data, array.nbytes, root_rank, f"{array.dtype}{list(array.shape)}", process_set,
            array,
        )
        for i, array in enumerate(arrays)
    ]  # fmt: skip
    for operation in operations:
        operation.finish()


def broadcast_numpy(arrays: List[np.ndarray], root_rank: int, name: str) -> List[np.ndarray]:
    """The root's arrays; all ranks' have the same shapes and dtypes."""
    mine = b"".join(array.tobytes() for array in arrays) if _job.rank() == root_rank else None
    data, begin, results = memory.broadcast_bytes(mine, root_rank, name), 0, []
    for array in arrays:
        results.append(np.frombuffer(data, array.dtype, array.size, begin).reshape(array.shape).copy())
        begin += array.nbytes
    return results
