"""libpsring.so through ctypes: loading, types, errors, handles.

Nothing above this module knows the library's signatures or return codes. A call of the library
releases the interpreter's lock, so other threads run on while one waits.
"""

import contextlib
import contextvars
import ctypes
import functools
import json
import os
import re
import threading
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_void_p
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

ABI = 8

OK, PENDING, ERROR, INTERRUPTED, INVALID = 0, 1, -1, -2, -3

UINT8, INT8, INT16, INT32, INT64 = 0, 1, 2, 3, 4
FLOAT16, BFLOAT16, FLOAT32, FLOAT64, BOOL = 5, 6, 7, 8, 9

SUM, AVERAGE, MIN, MAX, PRODUCT = 0, 1, 2, 3, 4

# How long one call may keep Python from looking after signals.
_SLICE_MS = 100


class PsringError(RuntimeError):
    """The job, or a call that all workers make together, failed."""

    __module__ = "psring"


class JobFailedError(PsringError):
    """The job has failed, and its first failure is known: the text names the
    process that caused it."""


class InvalidArgumentError(PsringError, ValueError):
    """The arguments of a call are wrong. The job lives."""


_SET = [POINTER(c_int32), c_int32]
# name: (result, arguments)
_SIGNATURES: Dict[str, Tuple[Any, List[Any]]] = {
    "psring_abi": (c_int, []),
    "psring_version": (c_char_p, []),
    "psring_error": (c_char_p, []),
    "psring_cuda_built": (c_int, []),
    "psring_policies": (c_char_p, []),
    "psring_join": (c_int64, [c_char_p]),
    "psring_coordinator": (c_char_p, []),
    "psring_job": (c_char_p, []),
    "psring_leave": (c_int64, [c_char_p]),
    "psring_heed_stop": (c_int, [c_int]),
    "psring_stop_asked": (c_int, []),
    "psring_log": (c_int, [c_char_p]),
    "psring_failure": (c_char_p, []),
    "psring_forked": (None, []),
    "psring_wait": (c_int, [c_int64, c_int]),
    "psring_wait_interruptibly": (c_int, [c_int64]),
    "psring_release": (c_int, [c_int64]),
    "psring_set_order": (c_int, [c_int64, c_char_p]),
    "psring_allreduce": (
        c_int64,
        [c_char_p, c_void_p, c_void_p, c_int64, c_int, c_int, c_double, c_double] + _SET,
    ),
    "psring_allgather": (c_int64, [c_char_p, c_void_p, c_int64, c_char_p, c_void_p, c_int64] + _SET),
    "psring_broadcast": (c_int64, [c_char_p, c_void_p, c_int64, c_int, c_char_p] + _SET),
    "psring_alltoall": (c_int64, [c_char_p, c_void_p, POINTER(c_int64), c_char_p, c_void_p, c_int64] + _SET),
    "psring_reducescatter": (
        c_int64,
        [c_char_p, c_void_p, c_void_p, POINTER(c_int64), c_int, c_int, c_double, c_double] + _SET,
    ),
    "psring_barrier": (c_int64, [c_char_p] + _SET),
    "psring_join_uneven": (c_int64, []),
    "psring_result_sizes": (c_int, [c_int64, POINTER(c_int64), c_int32]),
    "psring_result": (c_int, [c_int64, c_void_p, c_int64]),
    "psring_open_model": (c_int64, [c_char_p]),
    "psring_model": (c_char_p, [c_int64]),
    "psring_parameters": (c_void_p, [c_int64]),
    "psring_gradients": (c_void_p, [c_int64]),
    "psring_begin": (c_int64, [c_int64, POINTER(c_void_p), c_int32]),
    "psring_set_rates": (c_int, [c_int64, POINTER(c_double), c_int32]),
    "psring_set_stream": (c_int, [c_int64, c_void_p]),
    "psring_submit": (c_int, [c_int64, c_int32]),
    "psring_finish": (c_int, [c_int64]),
    "psring_updates": (c_int64, [c_int64]),
    "psring_synchronise": (c_int64, [c_int64]),
    "psring_fetch_slots": (c_int64, [c_int64, POINTER(c_void_p), c_int32]),
    "psring_traffic": (c_char_p, [c_int64]),
    "psring_close_model": (c_int64, [c_int64]),
    "psring_free_model": (c_int, [c_void_p]),
}

_library: Any = None
_lock = threading.Lock()


def _path() -> str:
    path = os.environ.get("PSRING_LIBRARY")
    if path:
        return path
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libpsring.so")


def _load() -> Any:
    path = _path()
    try:
        # Its own protobuf, not that of a framework which shows its symbols to all.
        library = ctypes.CDLL(path, mode=os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0))
    except OSError as error:
        remedy = (
            "PSRING_LIBRARY names it; correct that"
            if os.environ.get("PSRING_LIBRARY")
            else "install the psring wheel, or build libpsring.so and name it in PSRING_LIBRARY"
        )
        raise ImportError(f"psring cannot load {path}: {error}; {remedy}") from None
    try:
        abi = library.psring_abi()
    except AttributeError:
        raise ImportError(f"{path} is not psring's library: it has no psring_abi") from None
    if abi != ABI:
        raise ImportError(
            f"{path} has interface {abi}, this Python package needs {ABI}: "
            "take both from the same version of psring"
        )
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(
                f"{path} has no {name}, which this Python package needs: take both from the same version of psring"
            )
        function.restype = result
        function.argtypes = arguments
    return library


def library() -> Any:
    """The library, loaded at the first call."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _load()
    return _library


def loaded() -> bool:
    return _library is not None


def use(stand_in: Any) -> None:
    """Takes `stand_in`, an object with the library's functions, in its place."""
    global _library
    _library = stand_in
    policies.cache_clear()


def _text(value: Optional[bytes]) -> str:
    return value.decode("utf-8", "replace") if value else ""


def version() -> str:
    return _text(library().psring_version())


def cuda_built() -> bool:
    """Whether models may lie in a GPU's memory."""
    return bool(library().psring_cuda_built())


class Policy(NamedTuple):
    """A consistency of the parameter server."""

    name: str
    barrier: bool  # all take every step together
    bounded: bool  # it needs a staleness

    @property
    def form(self) -> str:
        return f"{self.name}:K" if self.bounded else self.name


@functools.lru_cache(maxsize=None)
def policies() -> Dict[str, Policy]:
    """By name, the default first."""
    told = json.loads(_text(library().psring_policies()))
    return {policy["name"]: Policy(**policy) for policy in told}


# What the library says of a worker that lives and does not come to a step.
_LATE = re.compile(
    r"has not (pushed step|come to collective|done its part of collective)|has sent nothing in time|not called within"
    r"|has left the job, but|no more data here, but"
)
_REMEDY = (
    "If it has fewer batches, give each rank as many, or let it call join() after its last one (psring.torch.join(); "
    "with Keras and JAX psring.join(), for update=\"local\" alone); if it takes longer, increase step_timeout_s. What "
    "ends a training early has to be the same on all ranks (with Keras, MetricAverageCallback goes before EarlyStopping)"
)
# Where ranks meet before what all of them call: _models.py.
_CALLED_BY_SOME = re.compile(r"'(state|synchronise|end) of model\.")
_REMEDIES = {
    "state": "The optimizer's state is fetched by all ranks together (update=\"fused\", ssp, async): all call "
    "optimizer.state_dict() (with Keras synchronize_state()), also where rank 0 alone saves it",
    "synchronise": "Parameters are synchronized by all ranks together: all call synchronize_parameters(), also where "
    "rank 0 alone evaluates or saves; if another rank still trains, increase step_timeout_s",
    "end": "All ranks together close an optimizer and, after the first step with update=\"fused\", ssp and async, give it a "
    "state (load_state_dict()): where rank 0 alone has the checkpoint, state = broadcast_object(state) gives it to all",
}


# Of a group of torch.distributed: torch/process_group.py.
_OF_GROUP = re.compile(r"'group[0-9a-f]+\.\w[^']*\.noname\.")
_GROUP_REMEDY = (
    "If it has fewer batches, give each rank as many, or wrap the loop in DistributedDataParallel's `with model.join():`; if it "
    "takes longer, give init_process_group() a longer timeout"
)


# Of sum() and mean() of numbers: collectives.py.
_OTHER_NUMBERS = re.compile(r"'number\W[^']*': rank \d+ brings 1 (int64|float64), ")
_NUMBERS_REMEDY = "A sum() of whole numbers is one of int64, and others are of float64: pass floats on all ranks, and call the same of sum() and mean()"

# Of a call that was given no name (_names.py) and is another on another rank.
_OTHER_CALL = re.compile(r"'[^']*\.noname\.\d[^']*': rank \d+ (brings|calls|wants|names|multiplies)")
_CALLS_REMEDY = (
    "Calls that are given no name meet in their order: all ranks make the same ones, with the same shapes, equally often. A rank that "
    "has no more batches calls join()"
)


def _with_remedy(error: str) -> str:
    met = _CALLED_BY_SOME.search(error)
    if met:
        remedy = _REMEDIES[met[1]]
    elif _OTHER_NUMBERS.search(error):
        remedy = _NUMBERS_REMEDY
    elif _OTHER_CALL.search(error):
        remedy = _CALLS_REMEDY
    elif _LATE.search(error):
        remedy = _GROUP_REMEDY if _OF_GROUP.search(error) else _REMEDY
    else:
        remedy = ""
    return f"{error}. {remedy}" if remedy and remedy not in error else error


def failure() -> str:
    """The first failure of the job, "" while there is none."""
    return _with_remedy(_text(library().psring_failure())) if loaded() else ""


def check(code: int) -> int:
    """Raises what a negative code stands for; others it returns."""
    if code >= 0:
        return code
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    error = _with_remedy(_text(library().psring_error()))
    known = failure()
    if code == INVALID and error != known:  # else this process has left the job, which failed
        raise InvalidArgumentError(error)
    raise JobFailedError(known) if known else PsringError(error)


def text(value: Optional[bytes]) -> str:
    """A text that the library returned; null is an error."""
    if value is None:
        check(ERROR)
    return _text(value)


def encoded(value: str) -> bytes:
    """A text for the library, with NULs, and bytes of file names that are not UTF-8, written out."""
    return value.encode(errors="backslashreplace").replace(b"\0", b"\\x00")


def encoded_json(value: Any) -> bytes:
    """JSON for the library, with bytes of file names that are not UTF-8 written out."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda found: f"\\\\u{ord(found[0]):04x}", text).encode()


def ranks_array(ranks: Optional[Sequence[int]]) -> Tuple[Any, int]:
    """A set of ranks, sorted, as the library takes it; None: all ranks."""
    if ranks is None:
        return None, 0
    return (c_int32 * len(ranks))(*ranks), len(ranks)


_ends_at_interrupts: "contextvars.ContextVar[bool]" = contextvars.ContextVar("ends_at_interrupts", default=False)


@contextlib.contextmanager
def ending_at_interrupts() -> Iterator[None]:
    """What this thread waits for within it, Ctrl-C ends, and the job: for a thread of a framework's,
    while the main thread is in the framework and cannot raise KeyboardInterrupt."""
    token = _ends_at_interrupts.set(True)
    try:
        yield
    finally:
        _ends_at_interrupts.reset(token)


# Operations hold on to the memory that the library reads and writes, even where
# the caller drops them before they are done.
_running: Dict[int, "Operation"] = {}


class Operation:
    """Something that the library has started; done once wait() has returned."""

    __slots__ = ("_number", "_keep", "_done", "_error", "_lock", "__weakref__")

    def __init__(self, number: int, keep: Any = None):
        self._number = check(number)
        self._keep = keep
        self._done = False
        self._error: Optional[BaseException] = None
        self._lock = threading.Lock()
        _running[self._number] = self

    def poll(self, milliseconds: int = 0) -> bool:
        """Whether wait() would return (or fail) at once, or so soon."""
        return self._done or library().psring_wait(self._number, milliseconds) != PENDING

    def wait(self) -> None:
        """Returns when the operation is done. Ctrl-C interrupts it; in a thread where Python does not
        look after signals, within ending_at_interrupts()."""
        while not self._done:
            if _ends_at_interrupts.get():
                code = library().psring_wait_interruptibly(self._number)
            else:
                code = library().psring_wait(self._number, _SLICE_MS)
            if code == PENDING:
                continue
            try:
                check(code)
            except PsringError as error:
                self.release()
                self._error = error
            self._done = True
        if self._error is not None:
            raise self._error

    def set_order(self, order: str) -> None:
        """Right after the start: see psring_set_order."""
        check(library().psring_set_order(self._number, order.encode()))

    def sizes(self, count: int) -> List[int]:
        """The bytes that came from each rank of the set."""
        array = (c_int64 * count)()
        check(library().psring_result_sizes(self._number, array, count))
        return list(array)

    def result(self, address: Optional[int], size: int) -> None:
        """Copies what came to `size` bytes at `address`."""
        check(library().psring_result(self._number, address, size))

    def release(self) -> None:
        """The library and this object forget the operation and its memory."""
        with self._lock:
            if _running.pop(self._number, None) is not None:
                library().psring_release(self._number)
            self._keep = None

    def finish(self) -> None:
        self.wait()
        self.release()


def forget_all() -> None:
    """In a child of fork: the operations are the parent's."""
    _running.clear()
