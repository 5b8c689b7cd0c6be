"""Puts the gradients of one step in their places, and submits each bucket when it is full."""

from typing import Any, List, Tuple

import torch

from .. import _lib
from ._tensors import copy_all, warn_once
from .entry import Entry


def _value(grad: torch.Tensor) -> torch.Tensor:
    """Without its graph, which only backward(create_graph=True) makes: each hook would pay for detach()."""
    return grad.detach() if grad.requires_grad else grad


class BucketFiller:
    """Buckets leave in the order of their numbers. The reducer uses it under its lock.

    Args:
        exchange: where gradients go.
        dense: the entries that have a place in it.
        prescale: factor of every gradient before it leaves.
        makes_dense: the script has asked for it (sparse_as_dense).
    """

    def __init__(self, exchange: Any, dense: List[Entry], prescale: float, makes_dense: bool):
        self._exchange, self._prescale, self._makes_dense = exchange, prescale, makes_dense
        self._sizes = [0] * exchange.num_buckets
        for entry in dense:
            self._sizes[entry.bucket] += 1
        self.begin()

    def begin(self) -> None:
        """Begins a step."""
        self._next = 0
        self._left = list(self._sizes)
        # On a GPU: (place, gradient), by bucket.
        self._waiting: List[List[Tuple[torch.Tensor, torch.Tensor]]] = [[] for _ in self._sizes]

    def has_submitted(self) -> bool:
        """Whether something of this step has left."""
        return self._next > 0

    def hand_over(self, entry: Entry) -> None:
        """Copies one gradient, or zeros, to its place, and submits what is full. On a GPU, where
        launching a copy takes longer than a small one itself, a bucket's are copied when
        the last of them is there. Sparse ones travel by themselves."""
        if entry.sparse_dim:
            return
        grad, place = entry.param.grad, entry.gradient
        if place is None:
            raise _lib.PsringError(
                "the job in which this DistributedOptimizer was made has ended: make a new one after init()"
            )
        self._exchange.order()
        if grad is None:
            place.zero_()
        elif self._exchange.on_gpu and grad.layout == torch.strided:
            self._waiting[entry.bucket].append((place, _value(grad)))
            entry.remember(grad)
        else:
            if grad.layout != torch.strided and not self._makes_dense:
                warn_once(
                    f"the gradient of {entry.name} is sparse, and was not in the first backward(): psring makes it dense"
                )
            dense = grad if grad.layout == torch.strided else grad.to_dense()
            place.copy_(_value(dense))
            if self._prescale != 1.0:
                place.mul_(self._prescale)
            entry.remember(grad)
        self._left[entry.bucket] -= 1
        if self._left[entry.bucket] == 0:
            self._copy_waiting(entry.bucket)
        while self._next < len(self._left) and self._left[self._next] == 0:
            self._exchange.submit(self._next)
            self._next += 1

    def _copy_waiting(self, bucket: int) -> None:
        waiting, self._waiting[bucket] = self._waiting[bucket], []
        copy_all(waiting)
        if waiting and self._prescale != 1.0:
            torch._foreach_mul_([place for place, _ in waiting], self._prescale)


__all__ = ["BucketFiller"]
