"""The hooks by which autograd tells a reducer that a gradient is ready."""

import weakref
from typing import Any, Callable, List

import torch

from .entry import Entry

# Whether a module's load_state_dict() and .to() swap its parameters; torch 2.3 and newer.
modules_swap: Callable[[], bool] = getattr(torch.__future__, "get_swap_module_params_on_conversion", lambda: False)


class GradientHooks:
    """One on each parameter, until remove(). The reducer owns them.

    Args:
        entries: the parameters.
        reducer: on_gradient(entry) of it is called, within backward, where in_use() is true. Weakly held, because a
            parameter would keep it, and so itself, alive.
    """

    def __init__(self, entries: List[Entry], reducer: "weakref.ref[Any]"):
        self._entries, self._reducer = entries, reducer
        self._handles: List[Any] = []
        self._insides = [entry.param._cdata for entry in entries]
        for entry in entries:
            self._register(entry)

    def _register(self, entry: Entry) -> None:
        reducer, index = self._reducer, entry.index

        def hook(*_: Any) -> None:
            alive = reducer()
            if alive is not None and alive.in_use():
                alive.on_gradient(alive.entries[index])

        if hasattr(entry.param, "register_post_accumulate_grad_hook"):
            self._handles.append(entry.param.register_post_accumulate_grad_hook(hook))
        else:
            node = entry.param.expand_as(entry.param).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
            self._handles.append(node.register_hook(hook))
            self._handles.append(node)  # lives as long as somebody holds it

    def are_there(self) -> bool:
        return bool(self._handles)

    def restore_swapped(self) -> List[Entry]:
        """Parameters that have got another tensor's insides since the last look, without hooks, as load_state_dict() and
        .to() give them after torch.__future__.set_swap_module_params_on_conversion(True). They have their hooks again."""
        insides = [entry.param._cdata for entry in self._entries]
        if insides == self._insides:
            return []
        swapped = [entry for entry, old, new in zip(self._entries, self._insides, insides) if old != new]
        for entry in swapped:  # Python's list of them has stayed
            entry.param._post_accumulate_grad_hooks = entry.param._post_accumulate_grad_hooks
        self._insides = insides
        return swapped

    def remove(self) -> None:
        for handle in self._handles:
            if hasattr(handle, "remove"):
                handle.remove()
        self._handles = []


__all__ = ["GradientHooks", "modules_swap"]
