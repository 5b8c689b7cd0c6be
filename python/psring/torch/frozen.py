"""Parameters that a script has frozen since the first step: this worker makes no gradients of theirs any more."""

from typing import List

import torch

from .. import collectives as memory
from ..process_sets import ProcessSet
from .entry import Entry


class FrozenParameters:
    """Drops their gradients. The reducer owns it, and calls it under its lock.

    Args:
        name: of the exchange.
        process_set: the workers that exchange.
        keeps_error: what compression has left out of earlier sums comes with later ones.
    """

    def __init__(self, name: str, process_set: ProcessSet, keeps_error: bool):
        self._name, self._process_set, self._keeps_error = name, process_set, keeps_error
        self._agreed: List[str] = []

    def drop_gradients(self, frozen: List[Entry]) -> None:
        """p.grad of what is frozen becomes None, as torch's optimizers know it; their momentum would move it where
        p.grad is zeros. Others may still train it, which shows, unless what there is may be the error of a
        compression: then all workers must have frozen the same ones. Raises an error where they have not."""
        self._agree([entry.name for entry in frozen])
        held = [e for e in frozen if e.param.grad is not None and e.param.grad.layout == torch.strided]
        used = [False] * len(held)
        if held and not self._keeps_error:
            answers = [e.param.grad.any() for e in held]  # read together: that waits for the GPU
            used = torch.stack([answer.to(answers[0].device) for answer in answers]).tolist()
        for entry, others_train_it in zip(held, used):
            if not others_train_it:
                entry.param.grad = None

    def _agree(self, names: List[str]) -> None:
        if self._keeps_error and names != self._agreed:
            memory.agree([f"frozen: {', '.join(names)}"], self._name + ".frozen", self._process_set)
            self._agreed = names


__all__ = ["FrozenParameters"]
