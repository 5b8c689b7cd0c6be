"""Whether all ranks' optimizers step by the same numbers, and as often: else the same gradients make other
parameters of theirs."""

import array
import numbers
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch

from .. import _lib
from .. import collectives as memory
from ..collectives import agree
from ..process_sets import ProcessSet
from .buffers import Buffers

_NUMBERS = ("lr", "momentum", "betas", "weight_decay", "eps", "alpha", "rho", "dampening")

_SAME_SCHEDULES = "A schedule does the same on all ranks where it is given the same, such as ps.mean(loss)"


def _number(value: Any) -> Optional[float]:
    """None where it is none, or would have to be waited for."""
    if isinstance(value, torch.Tensor) and value.numel() == 1 and value.device.type == "cpu":
        return float(value)
    return float(value) if isinstance(value, numbers.Real) else None


def _settings(optimizer: Any) -> Iterator[Tuple[int, str, List[float]]]:
    """The numbers by which an optimizer steps, of each param_group and name."""
    for index, group in enumerate(optimizer.param_groups):
        for name in _NUMBERS:
            value = group.get(name)
            kind = type(value)
            if kind is float or kind is int:  # most are, and this is asked in each step
                yield index, name, [value]
            elif value is not None:
                known = [_number(v) for v in (value if isinstance(value, (tuple, list)) else [value])]
                yield index, name, [number for number in known if number is not None]


def _numbers_of(optimizer: Any) -> bytes:
    """As exact as float32: hosts may compute a schedule with other libraries."""
    return array.array("f", [number for _, _, values in _settings(optimizer) for number in values]).tobytes()


def _hyperparameters(optimizer: Any) -> List[str]:
    """For people."""
    return [
        f"{name}={', '.join(f'{value:.7g}' for value in values)} of param_groups[{index}]"
        for index, name, values in _settings(optimizer)
        if values
    ]


class SameSettings:
    """The numbers of one optimizer with update="local", and how often step() was left out; its Part owns it.

    Args:
        optimizer: gives the optimizer.
        process_set: the ranks that are compared.
    """

    def __init__(self, optimizer: Callable[[], Any], process_set: ProcessSet):
        self._optimizer, self._process_set = optimizer, process_set
        self._unstepped = False  # a step's means are there, and step() has not been called since
        self._num_left_out = 0  # means that no step() has applied

    def means_are_there(self) -> None:
        self._num_left_out += self._unstepped
        self._unstepped = True

    def stepped(self) -> None:
        self._unstepped = False

    def has_joined(self) -> None:
        """join() is over: who had no more data has left out other steps than the others."""
        self._num_left_out, self._unstepped = 0, False

    def told(self, buffer_bytes: int) -> bytes:
        """What ModelExchange compares in each step.

        Args:
            buffer_bytes: of the buffers that all ranks get.
        """
        return _numbers_of(self._optimizer()) + b"%d %d" % (self._left_out(), buffer_bytes)

    def _left_out(self) -> int:
        return self._num_left_out + self._unstepped

    def raise_difference(self, name: str, step: int, all_have_data: bool, buffers: Optional[Buffers]) -> None:
        """Says what differs, where all ranks come here. They have the same name and step."""
        if all_have_data:
            self._compare(f"{name}.settings{step}", buffers)
        raise _lib.InvalidArgumentError(
            f"in step {step} the ranks' optimizers of '{name}' have different learning rates or other "
            f"settings, or have left out other calls of step(). {_SAME_SCHEDULES}"
        )

    def _compare(self, name: str, buffers: Optional[Buffers]) -> None:
        ranks = self._process_set
        everybody = memory.allgather_bytes(b"%d" % self._left_out(), name + ".left_out", ranks)
        if len(set(everybody)) > 1:
            told = ", ".join(f"{int(n)} on rank {rank}" for rank, n in zip(ranks.ranks, everybody))
            raise _lib.InvalidArgumentError(
                f"the ranks have left out step() after different numbers of backward(): {told}. All ranks apply a "
                "mean gradient, or none does: decide by what is the same on all, such as ps.mean(loss)"
            )
        try:
            agree(_hyperparameters(self._optimizer()), name, ranks)
        except _lib.InvalidArgumentError as error:
            raise type(error)(
                f"{error}. {_SAME_SCHEDULES}, and as many batches where it goes by their number, as that of "
                "Transformers' Trainer"
            ) from None
        try:
            agree(buffers.described() if buffers is not None else [], name + ".buffers", ranks)
        except _lib.InvalidArgumentError as error:
            raise type(error)(
                f"{error}. For buffers that grow on each rank by themselves, such as a cache of positions, pass "
                "broadcast_buffers=False to DistributedOptimizer"
            ) from None


__all__ = ["SameSettings"]
