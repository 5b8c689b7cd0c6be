"""What psring knows of one parameter: where its gradient goes, and what became of it."""

import weakref
from typing import Any, List, Optional

import torch

from ._tensors import increment_version


class Entry:
    """One parameter of an optimizer, in the exchange and in the current step."""

    __slots__ = (
        "name", "param", "dtype", "index", "gradient", "result", "bucket", "ready", "sparse_dim", "version", "address", "writes",
        "handed_out", "left_behind", "__weakref__",
    )  # fmt: skip

    def __init__(self, name: str, param: torch.nn.Parameter, index: int):
        self.name, self.param, self.index = name, param, index
        self.dtype = param.dtype  # when the exchange was made
        self.gradient: Optional[torch.Tensor] = None
        self.result: Optional[torch.Tensor] = None
        self.bucket = -1
        self.ready = False
        # Above 0: its gradients are sparse and travel by themselves.
        self.sparse_dim = 0
        # Of the gradient that was handed over; -1: there was none.
        self.version = -1
        self.address = 0
        # To the parameter, when its values came from the library; -1: they did not.
        self.writes = -1
        # The last p.grad over the exchange's memory, or with a copy of it; None: there was none.
        self.handed_out: Optional["weakref.ref[torch.Tensor]"] = None
        # Takes the parameter when the entry goes: torch swaps no tensor to which there is a weak reference before.
        self.left_behind: Optional[List["weakref.ref[torch.Tensor]"]] = None

    def __del__(self, ref: Any = weakref.ref) -> None:  # as Python ends, the module's names may be gone
        if self.left_behind is not None:
            self.left_behind.append(ref(self.param))

    def taken(self, param: torch.Tensor) -> None:
        """The parameter's values have come from the library."""
        self.writes = -1 if param.is_inference() else param._version

    def leaves(self) -> None:
        """Its gradient goes, and with update="fused" the library may write to the parameter's memory from
        now on. A backward() that still needs the values fails, as after any change in place."""
        if self.writes >= 0 and self.shares_result():
            increment_version(self.param)
            self.writes += 1

    def was_written(self) -> bool:
        """Whether a script has written to the parameter since then, but through p.data."""
        return self.writes >= 0 and self.param._version != self.writes

    def remember(self, grad: torch.Tensor) -> None:
        """It has been handed over."""
        self.version = grad._version
        self.address = grad.data_ptr() if grad.layout == torch.strided else 0

    def has_changed(self) -> bool:
        """Whether p.grad is no longer what was handed over. A change through p.grad.data is not seen."""
        grad = self.param.grad
        if self.version < 0:
            return False
        if grad is None or grad._version != self.version:
            return True
        return grad.layout == torch.strided and grad.data_ptr() != self.address

    def make_dense(self) -> None:
        """p.grad, if it is sparse."""
        grad = self.param.grad
        if grad is not None and grad.layout != torch.strided:
            self.param.grad = grad.to_dense()

    def hands_out(self, grad: torch.Tensor) -> None:
        """p.grad is what came back: it lies in the exchange's memory, or is a copy."""
        self.handed_out = weakref.ref(grad)

    def keep_apart(self) -> None:
        """Before that memory takes the next mean: a gradient that a script has kept, while p.grad has become another
        one, moves out of it."""
        kept = None if self.handed_out is None else self.handed_out()
        if kept is None or self.result is None:
            return
        kept._fix_weakref()  # Python owns it again, where torch alone did
        self.handed_out = None
        if kept is not self.param.grad and kept.data_ptr() == self.result.data_ptr():
            kept.data = kept.data.clone()

    def take_result(self) -> None:
        """p.grad becomes what came back."""
        param, result = self.param, self.result
        assert result is not None
        if self.shares_result():
            # A tensor and a count of writes of its own: p.grad.data = ... may turn it to other memory, as
            # model.half() does.
            param.grad = result.data
        elif param.grad is None or param.grad.layout != torch.strided:
            param.grad = result.to(device=param.device, dtype=param.dtype, copy=True)
        else:
            param.grad.copy_(result)
        self.hands_out(param.grad)

    def shares_result(self) -> bool:
        """Whether p.grad can be the result itself; else it is a copy."""
        return self.result is not None and self.param.device == self.result.device and self.param.dtype == torch.float32

    def holds_result(self) -> bool:
        """Whether p.grad lies in the exchange's memory."""
        grad = self.param.grad
        return (
            grad is not None
            and self.result is not None
            and grad.layout == torch.strided
            and grad.data_ptr() == self.result.data_ptr()
        )

    def holds_copy(self) -> bool:
        """Whether p.grad is the copy of the result that it became."""
        grad = self.param.grad
        return grad is not None and self.handed_out is not None and self.handed_out() is grad


__all__ = ["Entry"]
