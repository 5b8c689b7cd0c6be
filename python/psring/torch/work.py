"""A collective under way, as torch.distributed sees it."""

import queue
import threading
import time
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist

from ._tensors import untraced_methods
from .collectives import Handle

_Work = dist.Work if hasattr(dist, "Work") else dist._Work
_this_thread = threading.local()


@untraced_methods
class PsringWork(_Work):  # type: ignore[misc,valid-type]
    """A collective under way. Its future is set by the group's waiting thread."""

    def __init__(self, handles: List[Handle], finish: Callable[[], Any]):
        super().__init__()
        self._handles, self._finish = handles, finish
        self._lock = threading.Lock()
        self._done = False
        self._inference = torch.is_inference_mode_enabled()  # of the caller's thread; another one may complete it
        self._error: Optional[BaseException] = None
        self._result: Any = None
        self._ended: Any = torch.futures.Future()
        # Not set_exception(): DDP would take the exception, as what the future holds, for a tensor.
        self._future = self._ended.then(self._outcome)

    def _outcome(self, _: Any) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def complete(self) -> None:
        with self._lock:
            if self._done:
                return
            try:
                with torch.inference_mode(self._inference), torch.no_grad():
                    for handle in self._handles:
                        handle.wait()
                    self._result = self._finish()
            except BaseException as error:  # also what Ctrl-C raises: the future carries it
                self._error = error
            self._done = True
        self._ended.set_result(None)  # not under the lock: what is chained to the future runs here, and may wait

    def wait(self, timeout: Any = None) -> bool:
        """timeout: a timedelta; None or 0: the job's step_timeout_s. After an error of its own, it may be called again."""
        if timeout and timeout.total_seconds() > 0:  # torch has -1 ms for none, too
            self._await_within(timeout.total_seconds())
        self.complete()
        if self._error is not None:
            raise self._error
        return True

    def _await_within(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.is_completed():
            if time.monotonic() > end:
                raise RuntimeError(f"wait(timeout=...): the collective has not ended within {seconds:g} s")
            time.sleep(0.001)

    def is_completed(self) -> bool:
        if not self._done and all(handle.poll() for handle in self._handles):
            self.complete()  # the results are in their places then
        return self._done

    def is_success(self) -> bool:
        return self._done and self._error is None

    def exception(self) -> Any:
        return self._error

    def get_future(self) -> Any:
        if getattr(_this_thread, "sets_futures", False):
            self.complete()  # what is chained to another future may wait for this one, which nobody else would set
        return self._future

    def result(self) -> Any:
        return self._future.wait()


def complete_all(works: "queue.SimpleQueue[Any]") -> None:
    """DDP waits for futures without calling wait(): somebody has to set them."""
    _this_thread.sets_futures = True
    while True:
        work = works.get()
        if work is None:
            return
        work.complete()
        del work  # it holds the group


__all__ = ["PsringWork", "complete_all"]
