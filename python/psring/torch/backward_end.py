"""The end of a backward, at which autograd's engine calls what was queued in it, unless the backward fails."""

import functools
import weakref
from typing import Any, Callable, Optional

import torch


def _queue(call: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(call)


def _outer_node() -> Any:
    """In the engine's callback: the node of the outer backward, where a backward within a backward
    has ended (a checkpoint with use_reentrant=True). None before torch 2.1, which does not say."""
    node = getattr(torch._C, "_current_autograd_node", None)
    return node() if node is not None else None


NO_BACKWARD = -1


def current_backward() -> int:
    """The number of the backward that runs in this thread. NO_BACKWARD also before torch 2.0, which does not say."""
    number = getattr(torch._C, "_current_graph_task_id", None)
    return number() if number is not None else NO_BACKWARD


class BackwardEnd:
    """Calls a function when the outermost backward ends. The reducer owns it, and uses it under its lock.

    Args:
        call: the function. It forgets the backward.
    """

    def __init__(self, call: Callable[[], None]):
        self._call = call
        # What the engine calls. Where the backward fails, the engine lets it go.
        self._queued: Optional["weakref.ref[Callable[[], None]]"] = None

    def is_awaited(self) -> bool:
        """Also after a backward that has failed, until it is forgotten."""
        return self._queued is not None

    def has_failed(self) -> bool:
        """Whether the backward has, whose end was awaited."""
        return self._queued is not None and self._queued() is None

    def await_it(self) -> None:
        """Within the backward; again means nothing."""
        if self._queued is None:
            end = functools.partial(self._on_end)
            self._queued = weakref.ref(end)
            _queue(end)

    def forget(self) -> None:
        """The next backward is another one."""
        self._queued = None

    def _on_end(self) -> None:
        outer = _outer_node()
        if outer is None:
            self._call()
        else:
            self._await_end_of(outer)

    def _await_end_of(self, node: Any) -> None:
        """Queues it in the backward that `node` is part of: what is queued within the node belongs to the
        backward that it runs."""
        end = None if self._queued is None else self._queued()
        if end is None:
            return  # forgotten meanwhile

        def after(*_: Any) -> None:
            handle.remove()
            _queue(end)

        handle = node.register_hook(after)


__all__ = ["NO_BACKWARD", "BackwardEnd", "current_backward"]
