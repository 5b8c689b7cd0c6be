"""A line of figures for each step, for `psring compare` and for your own tools."""

import json
import os
import threading
import time
from typing import Any, Optional

from . import _job

_lock = threading.Lock()
_steps = 0


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


def log(step: Optional[int] = None, **values: Any) -> None:
    """Appends the values, with time, step and rank, to $PSRING_LOG_DIR/rank-R.jsonl.

    Does nothing where PSRING_LOG_DIR is not set. Values are numbers, texts, or
    tensors and arrays of one element. Without `step`, calls are counted from 0.
    """
    global _steps
    with _lock:
        number = _steps if step is None else int(step)
        _steps = number + 1
        folder = os.environ.get("PSRING_LOG_DIR")
        if not folder:
            return
        rank = _job.current().rank
        line = {"time": time.time(), "step": number, "rank": rank}
        line.update((name, _number(name, value)) for name, value in values.items())
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"rank-{rank}.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
