"""What a run says of itself, for `psring compare` and for your own tools."""

import threading
import time
import weakref
import zlib
from typing import Any, Callable, Dict, List, Optional, Set

from . import _failure, _job, _lib

# How often the metrics say how many steps have been made: so many seconds after a line, or a part of the
# time since the first one.
_SAYS_STEPS_EVERY = 0.25
_SAYS_STEPS_PART = 0.02

_lock = threading.Lock()
_wanted = False
_steps = 0
_epochs = 0
_epoch_step = -1  # of the last evaluation, and what has been told of it
_told: Set[str] = set()
_first_step = _last_step = _said_steps = 0.0
_at_end: List[Callable[[], Dict[str, Any]]] = []
_callbacks: List[Callable[..., Any]] = []

# What psring's metrics call them, and what they are called here.
_NAMES = {"loss": "train_loss", "accuracy": "test_accuracy"}
# What tells of an evaluation.
_EVALUATION = {"accuracy", "test_loss"}
# What is a number: `psring compare` judges by it.
_JUDGED = {"images_per_second", "test_loss", *_NAMES, *_NAMES.values()}
# What psring says of a line itself.
_OF_A_LINE = {"event", "seconds", "not_finite"}


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


def _is_infinite(value: Any) -> bool:
    """Or no number (NaN)."""
    return isinstance(value, float) and not abs(value) < float("inf")


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if _is_infinite(value) else value


def write(line: Dict[str, Any]) -> None:
    """A line of this process's metrics: an object with "event"."""
    text = _lib.encoded_json({key: _finite(value) for key, value in line.items()})
    _lib.check(_lib.library().psring_log(text))


def wanted() -> bool:
    """Whether anybody reads this process's metrics."""
    return _wanted


def joined(metrics_dir: Optional[str]) -> None:
    """The job writes its metrics there; None: nowhere."""
    global _wanted
    _wanted = bool(metrics_dir)


def count_step() -> None:
    """An optimizer begins a step; log() counts those of all optimizers."""
    _failure.goes_on()
    global _steps, _first_step, _last_step, _said_steps
    with _lock:
        made = _steps
        _steps += 1
        before, _last_step = _last_step, time.monotonic()
        if made == 0:
            _first_step = _last_step
        wait = min(_SAYS_STEPS_EVERY, _SAYS_STEPS_PART * (_last_step - _first_step))
        says = made == 0 or _last_step - _said_steps >= max(wait, 0.001)
        if says:
            _said_steps = _last_step
    if says and wanted():
        _say_steps(made, before)


def _say_steps(made: int, last_began: float) -> None:
    """So many steps have been made, the last of which began then."""
    last = time.monotonic() - last_began if made > 0 else 0.0
    write({"event": "progress", "step": made, "last_step_seconds": last})


def at_end(call: Callable[[], Dict[str, Any]]) -> None:
    """What call() returns goes with the last line of the metrics."""
    if call not in _at_end:
        _at_end.append(call)


class _Checksum:
    """Of the parameters of an optimizer as they are at the job's end, or as they were when the
    optimizer went: a script's main() may have returned by then."""

    def __init__(self, optimizer: Any, crc: Callable[[], Optional[int]]):
        self._alive, self._crc = weakref.ref(optimizer), crc
        self._last: Optional[int] = None
        weakref.finalize(optimizer, self._keep).atexit = False

    def __call__(self) -> Optional[int]:
        if self._alive() is not None:
            self._keep()
        return self._last

    def _keep(self) -> None:
        self._last = self._crc()


def tell_model(num_parameters: int, crc: Callable[[], Optional[int]], optimizer: Any = None) -> None:
    """The metrics learn of a model, and rank 0's at the end of its last bits.

    crc() is a CRC-32, or None where there is none. It does not refer to `optimizer`, if that is
    given, and is called no later than that goes.
    """
    write({"event": "model", "num_parameters": num_parameters})
    if _job.rank() != 0 or not wanted():
        return
    checksum = crc if optimizer is None else _Checksum(optimizer, crc)

    def last() -> Dict[str, Any]:
        value = checksum()
        return {} if value is None else {"weights_crc32": value}

    at_end(last)


def write_end() -> None:
    """Before a process leaves that has done its part."""
    line: Dict[str, Any] = {"event": "end", "step": _steps}
    if _steps > 1:
        # Of all steps, by those between the first and the last: not of what a script does before.
        line["seconds"] = (_last_step - _first_step) * _steps / (_steps - 1)
    if _steps > 0 and wanted():
        _say_steps(_steps, _last_step)
    for call in _at_end:
        figures = call()
        if "weights_crc32" in line and "weights_crc32" in figures:  # several models
            figures["weights_crc32"] = zlib.crc32(b"%08x" % figures["weights_crc32"], line["weights_crc32"])
        line.update(figures)
    write(line)


def forget() -> None:
    global _steps, _epochs, _epoch_step
    _steps = _epochs = 0
    _epoch_step = -1
    _told.clear()
    _at_end.clear()
    _callbacks.clear()


def log_to(callback: Callable[..., Any]) -> None:
    """From now on log() also calls callback({name: number}, step=step), in this process.

    That is the form of MLflow's log_metrics; for rank 0 alone:

        if psring.rank() == 0:
            psring.log_to(mlflow.log_metrics)

    Names are those of log(); texts are left out. Ends with psring.shutdown().
    """
    if not callable(callback):
        raise TypeError(f"log_to({callback!r}): it takes a function of names with numbers and a step, such as mlflow.log_metrics")
    _callbacks.append(callback)


def log(step: Optional[int] = None, **values: Any) -> None:
    """Writes figures into the metrics of this process.

    They go to worker-RANK.jsonl in the folder that PSRING_METRICS_DIR names, as
    lines of JSON, and rank 0's to TensorBoard in the folder that PSRING_TENSORBOARD or
    init(tensorboard=...) names; without these nowhere. A call with `accuracy` or `test_loss` tells of
    an evaluation: `psring compare` draws those of rank 0, and judges by the accuracy, or by the
    test_loss where there is none. `loss` is the training's; other names are yours. Values are numbers, texts, or tensors
    and arrays of one element; "event", "seconds" and "not_finite" are psring's. Without `step`, it is the number of steps that the
    optimizers have made.
    """
    global _epochs, _epoch_step
    _job.current()
    for name in sorted(_OF_A_LINE & values.keys()):
        raise ValueError(f"log({name}=...): psring says that of each line itself; use another name")
    line: Dict[str, Any] = {"event": "step", "loss": None, "images_per_second": None}
    figures = {name: _number(name, value) for name, value in values.items()}
    numbers = {name: value for name, value in figures.items() if isinstance(value, (int, float))}
    for name in sorted(_JUDGED & figures.keys()):
        if isinstance(figures[name], str):
            raise TypeError(f"log({name}={figures[name]!r}): it is a number")
    accuracy = numbers.get("accuracy", 0)
    if not 0 <= accuracy <= 1 and abs(accuracy) < float("inf"):
        raise ValueError(f"log(accuracy={accuracy}): it is a part of 1, such as 0.93; divide percent by 100")
    evaluation = _EVALUATION & figures.keys()
    with _lock:
        line["step"] = _steps if step is None else int(step)
        if evaluation:
            # A script may tell its accuracy and its test_loss in calls of their own.
            if line["step"] != _epoch_step or evaluation & _told:
                _epochs += 1
                _epoch_step = line["step"]
                _told.clear()
            _told.update(evaluation)
            line.update(event="epoch", train_loss=None, test_loss=None, test_accuracy=None)
            figures = {_NAMES.get(name, name): value for name, value in figures.items()}
    infinite = sorted(name for name in _JUDGED & figures.keys() if _is_infinite(figures[name]))
    if infinite:
        line["not_finite"] = infinite
    line.update(figures)
    if evaluation:
        line["epoch"] = _epochs  # a script may evaluate several times in an epoch of its own
    write(line)
    for callback in _callbacks:
        callback(numbers, step=line["step"])
