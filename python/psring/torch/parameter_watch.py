"""Warns where workers' parameters are not the same, which the same gradients keep apart."""

from typing import Any, List, Optional

from .._models import is_sampled
from ._tensors import digest, warn_once
from .entry import Entry
from .gradient_exchange import ModelExchange


class ParameterWatch:
    """Looks at the first step, and after some (is_sampled), without messages of its own: digests travel with
    what is exchanged anyway. It ends where parameters part, and where a worker says so. The reducer owns it.

    Args:
        entries: the parameters.
        watches: false: never looks.
    """

    def __init__(self, entries: List[Entry], watches: bool):
        self._entries, self._watches = entries, watches

    def end(self) -> None:
        """From now on this worker's may differ for a while, as it wants."""
        self._watches = False

    def first_digest(self) -> Optional[int]:
        """What this worker tells of its own before the first step; None: nothing."""
        return self._digest() if self._watches else None

    def compare_first(self, mine: Optional[int], everybody: List[Optional[int]], first_rank: int) -> None:
        """`everybody`: what all workers have told of theirs, that of `first_rank` first."""
        if len(set(everybody) - {None}) > 1:
            self.end()
        if None not in (mine, everybody[0]) and mine != everybody[0]:
            warn_once(
                f"the parameters of this rank are not those of rank {first_rank} as gradients are exchanged "
                "for the first time, and the same gradients keep them apart: call broadcast_parameters(model.state_dict(), root_rank=0) after "
                "the last change on one rank alone, such as a checkpoint that rank 0 loads. (Embedding(max_norm=...) "
                "changes its parameters on each rank by itself)"
            )

    def tell(self, exchange: Any) -> None:
        """After a step: what the next exchange tells of the parameters."""
        if self._watches and isinstance(exchange, ModelExchange) and exchange.counts_ranks:
            if is_sampled(exchange.steps):
                exchange.told_parameters = self._digest()

    def compare(self, exchange: Any) -> None:
        """What all workers told of an earlier step's, once it has come with the gradients."""
        if isinstance(exchange, ModelExchange) and not exchange.parameters_agree():
            self.end()
            warn_once(
                f"the workers' parameters are not the same any more after step {exchange.steps - 1}, and the same gradients "
                "keep them apart. Something besides these changes them: an optimizer's state that rank 0 alone has loaded "
                "from a checkpoint (call broadcast_optimizer_state(optimizer, root_rank=0) after that), random numbers of "
                "the optimizer (seed them alike on all workers), a change of p.grad on each worker by itself, or "
                "Embedding(max_norm=...). Processors of different kinds round differently, too"
            )

    def _digest(self) -> int:
        return digest([entry.param for entry in self._entries])


__all__ = ["ParameterWatch"]
