"""Signals that write every thread's Python stack to stderr, where the script has no use for them."""

import faulthandler
import signal
import sys
from typing import Set


def _has_use(number: int) -> bool:
    """Whether this process catches, ignores or blocks a signal."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        masks = [line.split()[1] for line in status if line.startswith(("SigBlk:", "SigIgn:", "SigCgt:"))]
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


# The library sends it to a process that hangs; others have their uses for SIGUSR1.
_HANGS = signal.SIGRTMIN + 10
_answered: Set[int] = set()


def _answer(number: int) -> None:
    try:
        if not _has_use(number):
            faulthandler.register(number, file=sys.__stderr__, all_threads=True)  # type: ignore[arg-type]
            _answered.add(number)
    except (OSError, ValueError, AttributeError, RuntimeError):
        pass  # No stderr to write to.


def answer_signals() -> int:
    """SIGUSR1, and the signal that it returns (0: none), write them."""
    for number in {signal.SIGUSR1, _HANGS} - _answered:
        _answer(number)
    return _HANGS if _HANGS in _answered else 0
