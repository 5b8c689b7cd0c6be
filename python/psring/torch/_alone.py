"""Tells a script that has trained in several workers, each for itself."""

import warnings
from typing import Any

import torch.distributed as dist

from .. import _job

# Steps of plain optimizers so far, without a process group of torch.distributed, which may exchange what psring does not see.
_steps = 0
# Collectives of fewer bytes are of metrics and settings, not of weights, gradients or samples.
_MANY_BYTES = 4096


def _count(*_: Any) -> None:
    global _steps
    _steps += not (dist.is_available() and dist.is_initialized())


try:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(_count)
except ImportError:
    pass  # before torch 2.0


def _warn() -> None:
    job = _job.current()
    averages = job.reductions * 10 >= _steps or job.most_bytes >= _MANY_BYTES
    if job.rank == 0 and job.size > 1 and not job.has_optimizer and not averages:
        warnings.warn(
            f"worker 0 made {_steps} steps of an optimizer that psring does not know, and the {job.size} workers have "
            "exchanged almost nothing: each trains for itself. To train one model together, wrap the optimizer: "
            "opt = ps.DistributedOptimizer(opt, model=model)"
        )


_job.before_end(_warn)
