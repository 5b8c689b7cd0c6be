"""Small arrays of one dtype travel as one: a collective costs by its messages more than by its bytes."""

import math
import zlib
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from . import collectives
from .process_sets import ProcessSet

# In elements: what takes no longer to copy than to send alone, and the most of a pack.
_SMALL = 16 << 10
_PACK = 1 << 20

# Of fewer arrays, comparing the packs takes longer than packing saves.
WORTH_PACKING = 16

Kind = Optional[Tuple[str, Tuple[int, ...]]]  # dtype and shape; None: travels alone


class Packs:
    """Which of some arrays travel together, and how they are packed and unpacked.

    It follows from the arrays' kinds alone, so ranks that bring the same arrays have the same packs. The
    library compares only how long packs are: Comparison compares what lies in them.
    """

    def __init__(self, kinds: Sequence[Kind]):
        self._kinds = kinds
        self.members: List[List[int]] = []  # indices of arrays, pack by pack
        room: Dict[str, Tuple[List[int], int]] = {}  # by dtype: the pack to go on with, its elements
        for index, kind in enumerate(kinds):
            size = _SMALL + 1 if kind is None else math.prod(kind[1])
            if kind is None or size > _SMALL:
                self.members.append([index])
                continue
            dtype = kind[0]
            pack, used = room.get(dtype, ([], _PACK + 1))  # none yet: an empty array wants one, too
            if used + size > _PACK:
                pack, used = [], 0
                self.members.append(pack)
            pack.append(index)
            room[dtype] = (pack, used + size)

    def pack(self, arrays: Sequence[Any], ops: Any) -> List[Any]:
        """`ops` has concatenate and reshape for these arrays, as numpy, jax.numpy and keras.ops do."""
        return [
            arrays[pack[0]] if len(pack) == 1 else ops.concatenate([ops.reshape(arrays[i], (-1,)) for i in pack])
            for pack in self.members
        ]

    def unpack(self, packed: Sequence[Any], ops: Any) -> List[Any]:
        arrays: List[Any] = [None] * len(self._kinds)
        for pack, together in zip(self.members, packed):
            if len(pack) == 1:
                arrays[pack[0]] = together
                continue
            begin = 0
            for index in pack:
                shape = self._shape(index)
                size = math.prod(shape)
                arrays[index] = ops.reshape(together[begin : begin + size], shape)
                begin += size
        return arrays

    def _shape(self, index: int) -> Tuple[int, ...]:
        kind = self._kinds[index]
        assert kind is not None
        return kind[1]

    def describe(self) -> List[str]:
        """The arrays of known kinds: packs follow from them."""
        return [f"array {i}, {kind[0]}{list(kind[1])}" for i, kind in enumerate(self._kinds) if kind is not None]


class Comparison:
    """Whether all ranks have packed the same arrays, by three numbers that are summed over them.

    A rank that has joined (collectives.join) brings zeros, and counts for nothing.
    """

    def __init__(self, packs: Packs):
        self._texts = packs.describe()
        digest = zlib.crc32("\n".join(self._texts).encode()) >> 12  # 20 bits: the sums below are exact
        self.numbers = [1.0, float(digest), float(digest) ** 2]

    def differs(self, sums: Iterable[float]) -> bool:
        """By the numbers' sums over all ranks: their variance is not 0."""
        count, total, squares = (int(value) for value in sums)
        return count * squares != total**2

    def check(self, sums: Iterable[float], name: str, process_set: ProcessSet) -> None:
        """Raises the same error on all ranks where their digests differ."""
        if self.differs(sums):
            collectives.agree(self._texts, name + ".arrays", process_set)
