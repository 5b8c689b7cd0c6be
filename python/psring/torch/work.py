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


class _Modes:
    """No gradients, and inference mode or not. As torch's two contexts, but where nothing changes in a third of the time."""

    __slots__ = ("_grad", "_inference")

    def __init__(self, inference: bool):
        self._inference = None if inference == torch.is_inference_mode_enabled() else torch.inference_mode(inference)

    def __enter__(self) -> None:
        if self._inference is not None:
            self._inference.__enter__()
        self._grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *error: Any) -> None:
        torch._C._set_grad_enabled(self._grad)
        if self._inference is not None:
            self._inference.__exit__(*error)


class Completion:
    """What is left to do for a work: any thread does it, once."""

    def __init__(self, handles: List[Handle], finish: Callable[[], Any]):
        self.handles, self._finish = handles, finish
        self.done = False
        self.error: Optional[BaseException] = None
        self._running = threading.Lock()
        self._state = threading.Lock()  # of what follows, and of `done`; nobody waits under it
        self._result: Any = None
        self._ended: Any = None
        self._future: Any = None
        self._inference = torch.is_inference_mode_enabled()  # of the caller's thread

    def run(self) -> None:
        """Waits for the collective. Its error is kept."""
        with self._running:
            if self.done:
                return
            try:
                with _Modes(self._inference):
                    for handle in self.handles:
                        handle.wait()
                    self._result = self._finish()
            except BaseException as error:  # also what Ctrl-C raises: the future carries it
                self.error = error
            with self._state:
                self.done = True
        if self._ended is not None:
            self._ended.set_result(None)  # under no lock: what is chained to the future runs here, and may wait

    def future(self, works: "queue.SimpleQueue[Any]") -> Any:
        """Set by the thread of `works`, unless the collective has been waited for."""
        with self._state:
            if self._future is None:
                # Not set_exception(): DDP would take the exception, as what the future holds, for a tensor.
                ended: Any = torch.futures.Future()
                self._future = ended.then(self._outcome)
                if self.done:
                    ended.set_result(None)
                else:
                    self._ended = ended
                    works.put(self)
            return self._future

    def _outcome(self, _: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self._result


@untraced_methods
class PsringWork(_Work):  # type: ignore[misc,valid-type]
    """A collective under way. Dropped, or asked for its future, it is completed by the thread of `works`, which ends with
    the group."""

    def __init__(self, handles: List[Handle], finish: Callable[[], Any], works: "queue.SimpleQueue[Any]", group: Any):
        super().__init__()
        self._completion, self._works, self._group = Completion(handles, finish), works, group

    def __del__(self) -> None:
        if not self._completion.done:
            self._works.put(self._completion)

    def wait(self, timeout: Any = None) -> bool:
        """timeout: a timedelta; None or 0: the job's step_timeout_s. After an error of its own, it may be called again."""
        if timeout and timeout.total_seconds() > 0:  # torch has -1 ms for none, too
            self._await_within(timeout.total_seconds())
        self._completion.run()
        if self._completion.error is not None:
            raise self._completion.error
        return True

    def _await_within(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.is_completed():
            left = end - time.monotonic()
            if left <= 0:
                raise RuntimeError(f"wait(timeout=...): the collective has not ended within {seconds:g} s")
            for handle in self._completion.handles:
                handle.poll(min(100, int(1000 * left) + 1))  # so that the library sees that this thread waits

    def is_completed(self) -> bool:
        if not self._completion.done and all(handle.poll() for handle in self._completion.handles):
            self._completion.run()  # the results are in their places then
        return self._completion.done

    def is_success(self) -> bool:
        return self.is_completed() and self._completion.error is None

    def exception(self) -> Any:
        self.is_completed()
        return self._completion.error

    def get_future(self) -> Any:
        if getattr(_this_thread, "sets_futures", False):
            self._completion.run()  # what is chained to another future may wait for this one, which nobody else would set
        return self._completion.future(self._works)

    def result(self) -> Any:
        return self.get_future().wait()


def complete_all(works: "queue.SimpleQueue[Any]") -> None:
    """Of Completions. DDP waits for futures without calling wait(): somebody has to set them."""
    _this_thread.sets_futures = True
    while True:
        completion = works.get()
        if completion is None:
            return
        completion.run()
        del completion  # what it holds may hold the group


__all__ = ["PsringWork", "complete_all"]
