"""What a run says of itself, for `psring compare` and for your own tools."""

import json
import os
import threading
from typing import Any, Callable, Dict, List, Optional

from . import _job, _lib

_lock = threading.Lock()
_steps = 0
_epochs = 0
_at_end: List[Callable[[], Dict[str, Any]]] = []

# What psring's metrics call them, and what they are called here.
_NAMES = {"loss": "train_loss", "accuracy": "test_accuracy"}


def _number(name: str, value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"log({name}=...) takes a number, not a {type(value).__name__}")
    try:
        return item()
    except (ValueError, RuntimeError, TypeError):
        raise ValueError(
            f"log({name}=...) takes one number, not {getattr(value, 'shape', value)}: "
            f"pass its mean, say, or its sum"
        ) from None


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def write(line: Dict[str, Any]) -> None:
    """A line of this process's metrics: an object with "event"."""
    text = json.dumps({key: _finite(value) for key, value in line.items()})
    _lib.check(_lib.library().psring_log(text.encode()))


def wanted() -> bool:
    """Whether anybody reads this process's metrics."""
    return bool(os.environ.get("PSRING_METRICS_DIR"))


def count_step() -> None:
    """An optimizer has made a step; log() counts by the one that makes most."""
    global _steps
    with _lock:
        _steps += 1


def at_end(call: Callable[[], Dict[str, Any]]) -> None:
    """What call() returns goes with the last line of the metrics."""
    _at_end.append(call)


def write_end() -> None:
    """Before a process leaves that has done its part."""
    line: Dict[str, Any] = {"event": "end", "step": _steps}
    for call in _at_end:
        line.update(call())
    write(line)


def forget() -> None:
    global _steps, _epochs
    _steps = _epochs = 0
    _at_end.clear()


def log(step: Optional[int] = None, **values: Any) -> None:
    """Writes figures into the metrics of this process.

    They go to worker-RANK.jsonl in the folder that PSRING_METRICS_DIR names, as
    lines of JSON; without it nowhere. A call with `accuracy` ends an epoch: it is
    what `psring compare` draws, of rank 0. `loss` is the training's, `test_loss`
    the evaluation's; other names are yours. Values are numbers, texts, or tensors
    and arrays of one element. Without `step`, it is the number of steps that the
    optimizers have made.
    """
    global _epochs
    _job.current()
    line: Dict[str, Any] = {"event": "step", "loss": None, "images_per_second": None}
    figures = {name: _number(name, value) for name, value in values.items()}
    with _lock:
        line["step"] = _steps if step is None else int(step)
        if "accuracy" in figures:
            _epochs += 1
            line.update(event="epoch", epoch=_epochs, train_loss=None, test_loss=None)
            figures = {_NAMES.get(name, name): value for name, value in figures.items()}
    line.update(figures)
    write(line)
