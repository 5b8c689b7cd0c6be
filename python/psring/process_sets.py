"""Groups of ranks that communicate among themselves."""

import itertools
from typing import Any, List, Optional, Sequence, Union

from . import _job


def whole(number: Any) -> int:
    """Raises TypeError or ValueError for what is none: a fraction, a text, or an element of a mask."""
    try:
        result = int(number)
    except OverflowError:  # infinity
        raise ValueError(f"{number!r} is no whole number") from None
    if isinstance(number, bool) or getattr(number, "dtype", None) == bool or result != number:
        raise TypeError(f"{number!r} is no whole number")
    return result


def check_process_set(process_set: Any) -> None:
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set={process_set!r}: it is a psring.ProcessSet, such as psring.ProcessSet([0, 1])")


class ProcessSet:
    """Some ranks of the job. Every collective takes one as `process_set`; exactly
    its ranks make the call then.

    A set needs no agreement before its first use: it is its list of ranks.
    """

    # 0 is the global set; None: not registered.
    process_set_id: Optional[int] = None

    def __init__(self, ranks: Sequence[int]):
        try:
            chosen = sorted(whole(rank) for rank in ranks)
        except (TypeError, ValueError):
            raise TypeError(f"ProcessSet({ranks!r}): it takes ranks, whole numbers, such as [0, 1]") from None
        if not chosen or len(set(chosen)) != len(chosen) or chosen[0] < 0:
            raise ValueError(f"ProcessSet({list(ranks)!r}): it takes different ranks, at least one")
        self._ranks: Optional[List[int]] = chosen

    @property
    def ranks(self) -> List[int]:
        if self._ranks is None:
            return list(range(_job.size()))
        return list(self._ranks)

    def _wire(self) -> Optional[List[int]]:
        """What the library takes: None for all ranks."""
        if self._ranks is None:
            return None
        self._check_ranks()
        if len(self._ranks) == _job.size():
            return None
        if not self.included():
            raise ValueError(f"rank {_job.rank()} called a collective of {self}, which it is not part of")
        return self._ranks

    def _check_ranks(self) -> None:
        if self._ranks is not None and self._ranks[-1] >= _job.size():
            raise ValueError(f"{self}: the job has ranks 0 to {_job.size() - 1}")

    def size(self) -> int:
        return _job.size() if self._ranks is None else len(self._ranks)

    def rank(self) -> int:
        """This process's number within the set. Raises where it is not in it."""
        if self._ranks is None:
            return _job.rank()
        if not self.included():
            raise ValueError(f"rank {_job.rank()} is not part of {self}")
        return self._ranks.index(_job.rank())

    def included(self) -> bool:
        return self._ranks is None or _job.rank() in self._ranks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcessSet) and self._ranks == other._ranks

    def __hash__(self) -> int:
        return hash(None if self._ranks is None else tuple(self._ranks))

    def __repr__(self) -> str:
        return "global_process_set" if self._ranks is None else f"ProcessSet({self._ranks})"


class _GlobalProcessSet(ProcessSet):
    process_set_id = 0

    def __init__(self) -> None:
        self._ranks = None


global_process_set = _GlobalProcessSet()
_ids = itertools.count(1)


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Checks a set against the job and gives it a number. Local: it waits for
    nobody. Every rank should add the same sets in the same order, so that the
    numbers agree; nothing else depends on them."""
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    added._check_ranks()
    if added.process_set_id is None:
        added.process_set_id = next(_ids)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Takes the number back; whether there was one to take."""
    check_process_set(process_set)
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    process_set.process_set_id = None
    return True
