"""The names of collectives: by its name a call is the same call on all ranks."""

import zlib
from collections import Counter
from typing import Optional, Tuple

from . import _job
from .process_sets import ProcessSet, check_process_set, global_process_set


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


def forget_calls() -> None:
    """Unnamed calls count from the beginning; the names of what lasts do not."""
    _calls.clear()


def _forget_names() -> None:
    forget_calls()
    _lasting.clear()


_job.at_init(_forget_names)
