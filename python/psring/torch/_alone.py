"""Tells a script that has trained in several workers, each for itself."""

import warnings
from typing import Any

from .. import _job

# Steps of plain optimizers so far.
_steps = 0
# Fewer reductions than one in so many steps are of metrics, not of gradients or weights.
_SELDOM = 10


def _count(*_: Any) -> None:
    global _steps
    _steps += 1


try:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(_count)
except ImportError:
    pass  # before torch 2.0


def _warn() -> None:
    job = _job.current()
    if job.rank == 0 and job.size > 1 and not job.has_optimizer and _steps > _SELDOM * job.reductions:
        warnings.warn(
            f"each of the {job.size} workers has trained for itself: this one made {_steps} steps of an optimizer that "
            "psring does not know. To train one model together, wrap it: opt = ps.DistributedOptimizer(opt, model=model)"
        )


_job.before_end(_warn)
