"""What happens when a worker fails: all others learn why, and say it once.

An exception that nobody catches is printed as always by the worker that raised
it, and sent to the job. The others fail in their next call with that text; their
last line is `psring: worker 2 (host b, pid 4711) failed ...: ValueError: ...`
instead of a traceback, which would only show where they were waiting. All end
with a code that is not zero.
"""

import builtins
import functools
import os
import sys
import threading
import time
from typing import Any, Callable, Dict, Optional, Tuple, TypeVar, cast

from . import _lib

_Call = TypeVar("_Call", bound=Callable[..., Any])

# As long as a failing process waits for the others to be told.
_TELL_SECONDS = 5.0
# How much later a process ends that fails because another one has: launchers and engines take the first that
# ends for the culprit.
_AFTER_CULPRIT_SECONDS = 1.0
# Of a process that wrong arguments have ended, as of psring's commands and of argparse: psring run starts it no more.
_USAGE_CODE = 2

_leave: Optional[Callable[..., None]] = None
_rank = 0
_armed = False
_told = False
_exit_code = 0
_previous: Any = None
_previous_thread: Any = None


class _Exit:
    """sys.exit, or the interpreter's exit or quit, which leaves the only trace of SystemExit that is there when
    atexit's handlers run."""

    def __init__(self, leave: Callable[..., Any], module: str, name: str):
        self.leave = leave
        self.__module__, self.__name__, self.__doc__ = module, name, leave.__doc__

    def __call__(self, code: Any = None) -> Any:
        global _exit_code
        if threading.current_thread() is threading.main_thread():
            _exit_code = 0 if code is None else code
        return self.leave(code)

    def __repr__(self) -> str:
        return repr(self.leave)

    def __reduce__(self) -> str:
        return self.__name__  # of __module__


_EXITS = (sys, "exit"), (builtins, "exit"), (builtins, "quit")
_wrapped: Dict[Tuple[Any, str], _Exit] = {}  # by the place of each


def arm(leave: Callable[..., None], rank: int) -> None:
    """From now on, an exception that nobody catches ends the job."""
    global _leave, _rank, _armed, _told, _exit_code, _previous_thread
    _leave, _rank, _told, _exit_code = leave, rank, False, 0
    if _armed:
        return
    _armed = True
    _hook_exceptions()
    if _previous_thread is None:
        _previous_thread, threading.excepthook = threading.excepthook, _on_thread_exception
    for module, name in _EXITS:
        if hasattr(module, name) and (module, name) not in _wrapped:  # python -S has no exit() and no quit()
            _wrapped[module, name] = _Exit(getattr(module, name), module.__name__, name)
            setattr(module, name, _wrapped[module, name])


def _hook_exceptions() -> None:
    """One that others have chained since an earlier job still gets its calls."""
    global _previous
    if _previous is None:
        _previous, sys.excepthook = sys.excepthook, _on_exception


def wrong_arguments(error: Exception) -> None:
    """A process that ends by `error` has the exit code of wrong usage: another start of it would fail like this one."""
    error._psring_wrong_arguments = True  # type: ignore[attr-defined]
    _hook_exceptions()


def checks_arguments(call: _Call) -> _Call:
    """Of a function whose errors, where one rank alone raises them, are about its arguments."""

    @functools.wraps(call)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except _lib.PsringError:
            raise  # of the job, or of the network, which may be another one at the next start
        except (TypeError, ValueError, NotImplementedError) as error:
            wrong_arguments(error)
            raise

    return cast(_Call, checked)


def disarm() -> None:
    """The hooks stay (others may have chained theirs), and do nothing more."""
    global _armed, _exit_code, _previous, _previous_thread
    _armed, _exit_code = False, 0
    if sys.excepthook is _on_exception:
        sys.excepthook, _previous = _previous, None
    if threading.excepthook is _on_thread_exception:
        threading.excepthook, _previous_thread = _previous_thread, None
    for (module, name), ours in list(_wrapped.items()):
        if getattr(module, name, None) is ours:
            setattr(module, name, ours.leave)
            del _wrapped[module, name]


def told() -> bool:
    """Whether the job knows already that this process has failed."""
    return _told


def exit_code() -> Any:
    """What sys.exit, exit or quit was called with; 0 where none was."""
    return _exit_code


def goes_on() -> None:
    """A call of psring's begins: where sys.exit's exception has been caught, it ended nothing."""
    global _exit_code
    if not _exit_code or isinstance(sys.exc_info()[1], SystemExit):
        return
    main = threading.main_thread()
    if threading.current_thread() is main and main.is_alive():  # which it is no more for atexit's handlers
        _exit_code = 0


def _by_job(error: Optional[BaseException]) -> bool:
    """Whether the job's failure is the cause of `error`."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, _lib.JobFailedError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def by_another(error: Optional[BaseException] = None) -> bool:
    """Whether this process ends, by `error` or another way, because the job has failed by another."""
    failure = _lib.failure() or ""
    return bool(failure or _by_job(error)) and not failure.startswith(f"worker {_rank} ")


def let_culprit_end_first(error: Optional[BaseException] = None) -> None:
    """Waits a moment where this process ends because the job has failed by another."""
    if by_another(error):
        time.sleep(_AFTER_CULPRIT_SECONDS)


def _said_by(error: Optional[BaseException]) -> str:
    try:
        return _without_frames(str(error))
    except Exception as failed:
        return f"(its __str__() raised {type(failed).__name__})"


def _without_frames(text: str) -> str:
    """JAX's error of a callback within jit has the traceback of that in its text: others need only what it ends with."""
    before, _, frames = text.partition("Traceback (most recent call last):\n")
    lines = frames.splitlines()
    while lines and lines[0].startswith(" "):
        lines.pop(0)
    return before + "\n".join(lines) if lines else text


def described(error: Optional[BaseException]) -> str:
    """Its type and what it says, also where it cannot say that."""
    return f"{type(error).__name__}: {_said_by(error)}"


def _line(error: Optional[BaseException]) -> str:
    return "psring: " + (_lib.failure() or described(error))


def _print_last(line: str) -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        pass
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        pass


def _leave_with(error: str) -> None:
    """Tells the job why it fails, unless it is over already."""
    try:
        assert _leave is not None
        _leave(error, seconds=_TELL_SECONDS)
    except (_lib.PsringError, KeyboardInterrupt):
        pass


def _tell(kind: Any, error: Any) -> None:
    global _told
    _told = True
    name = getattr(kind, "__name__", str(kind))
    what = _said_by(error).strip()
    _leave_with(f"{name}: {what}" if what else name)  # this process's own traceback is printed
    # The job may know better why: another process hangs.
    if _lib.failure() and not _lib.failure().startswith(f"worker {_rank} "):
        _print_last(_line(error))


def _on_exception(kind: Any, error: Any, trace: Any) -> None:
    _say_exception(kind, error, trace)
    if getattr(error, "_psring_wrong_arguments", False) and not hasattr(sys, "ps1"):  # a prompt lives on
        raise SystemExit(_USAGE_CODE)


def _say_exception(kind: Any, error: Any, trace: Any) -> None:
    global _told
    if not _armed:
        (_previous or sys.__excepthook__)(kind, error, trace)
    elif _by_job(error):
        _told = True
        line = _line(error)
        if "has left the job, but" in line:
            # A worker that waits for one which has left is the first to know of this failure.
            _leave_with(line[len("psring: ") :])
        _print_last(line)
        let_culprit_end_first(error)
    else:
        (_previous or sys.__excepthook__)(kind, error, trace)
        if _lib.failure() and not issubclass(kind, KeyboardInterrupt):
            # Gloo's connection that ended, say: the reason is somebody else's.
            _told = True
            _print_last(_line(error))
            let_culprit_end_first()
        else:
            _tell(kind, error)


def _on_thread_exception(arguments: Any) -> None:
    if not _armed or arguments.exc_type is SystemExit:
        _previous_thread(arguments)
    elif not _by_job(arguments.exc_value):
        _previous_thread(arguments)
        _tell(arguments.exc_type, arguments.exc_value)
    # Else the main thread meets the same failure, and says it.


def end_process(error: BaseException) -> None:
    """Of atexit's handler: an exception there would not change the exit code."""
    _print_last(_line(error))
    let_culprit_end_first(error)
    os._exit(1)
