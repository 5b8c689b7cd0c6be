"""Tells a script that has trained in several workers, each for itself."""

import warnings
from typing import Any

import torch.distributed as dist

from .. import _job

# Steps of plain optimizers so far, without a process group of torch.distributed, which may exchange what psring does not see.
_steps = 0
# And with a group over psring's backend, and whether anything has travelled over one.
_steps_beside_group = 0
_group_is_used = False
# Collectives of fewer bytes are of metrics and settings, not of weights, gradients or samples.
_MANY_BYTES = 4096


def note_group_is_used() -> None:
    global _group_is_used
    _group_is_used = True


def _count(*_: Any) -> None:
    global _steps, _steps_beside_group
    if not (dist.is_available() and dist.is_initialized()):
        _steps += 1
    elif dist.get_backend() == "psring":
        _steps_beside_group += 1


try:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(_count)
except ImportError:
    pass  # before torch 2.0


def _warn() -> None:
    job = _job.current()
    if job.rank != 0 or job.size == 1 or job.has_optimizer:
        return
    averages = job.reductions * 10 >= _steps or job.most_bytes >= _MANY_BYTES
    if not averages:
        warnings.warn(
            f"worker 0 made {_steps} steps of an optimizer that psring does not know, and the {job.size} workers have "
            "exchanged almost nothing: each trains for itself. To train one model together, wrap the optimizer: "
            "opt = ps.DistributedOptimizer(opt, model=model)"
        )
    elif _steps_beside_group and not _group_is_used:
        warnings.warn(
            f"worker 0 made {_steps_beside_group} steps of an optimizer, and nothing has travelled over the backend psring: "
            "each worker trains for itself. To train one model together, give "
            "DistributedDataParallel(model), Accelerator(cpu=True) or TrainingArguments(use_cpu=True)"
        )


_job.before_end(_warn)
