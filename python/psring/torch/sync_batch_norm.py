"""Batch normalisation with the statistics of all ranks' batches."""

from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm

from .. import _job
from ..collectives import Sum, auto_name
from ..process_sets import ProcessSet, global_process_set
from ._tensors import untraced, warn_once
from .collectives import allreduce


class SyncBatchNorm(_BatchNorm):
    """nn.BatchNorm1d, 2d or 3d whose mean and variance are those of all ranks'
    batches, which may differ in size. In evaluation it is the same as those.

    All ranks run it in the same order. A forward takes two small allreduces, and
    so does its backward; the gradient is the exact one.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1,
                 affine: bool = True, track_running_stats: bool = True,
                 process_set: ProcessSet = global_process_set, **more: Any):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **more)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm takes (N, C, ...), not {input.dim()} dimensions")
        # One channel would be broadcast to all.
        if any(own is not None and len(own) != input.shape[1] for own in (self.running_mean, self.weight)):
            raise ValueError(
                f"SyncBatchNorm({self.num_features}) takes as many channels, and this input has {input.shape[1]}: make it "
                f"SyncBatchNorm({input.shape[1]})"
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not self.training or self.process_set.size() == 1:
            return super().forward(input)
        return self._normalise_by_all(input)

    @untraced  # each call has another name, for which torch.compile would trace again
    def _normalise_by_all(self, input: torch.Tensor) -> torch.Tensor:
        name = auto_name("sync_batch_norm", self.process_set)
        # Statistics in float32 even of half precision.
        x = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        axes = [0, *range(2, x.dim())]
        shape = [1, -1] + [1] * (x.dim() - 2)
        count = x.numel() // x.shape[1] if x.shape[1] else 0
        sums = torch.cat([x.sum(axes), x.new_full((1,), float(count))])
        sums = allreduce(sums, op=Sum, name=name + ".mean", process_set=self.process_set)
        total = sums[-1].detach()
        if total <= 1:
            raise ValueError("SyncBatchNorm needs more than one value per channel among all ranks")
        mean = sums[:-1] / total
        centred = x - mean.reshape(shape)
        # From the mean of all: sums of squares alone would lose precision.
        squares = allreduce(
            (centred * centred).sum(axes), op=Sum, name=name + ".var", process_set=self.process_set
        )
        variance = squares / total
        self._update_running(mean.detach(), (squares / (total - 1)).detach())
        out = centred * torch.rsqrt(variance + self.eps).reshape(shape)
        if self.affine:
            out = out * self.weight.reshape(shape)
            if self.bias is not None:
                out = out + self.bias.reshape(shape)
        return out.to(input.dtype)

    def _update_running(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        if not self.track_running_stats:
            return
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            momentum = self.momentum
            if momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
            self.running_var.lerp_(variance.to(self.running_var.dtype), momentum)

    @classmethod
    def convert_sync_batchnorm(
        cls, module: torch.nn.Module, process_set: ProcessSet = global_process_set
    ) -> torch.nn.Module:
        """A module with every batch norm in it replaced, torch's SyncBatchNorm too, weights and all."""
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            made = cls(module.num_features, module.eps, module.momentum, module.affine,
                       module.track_running_stats, process_set)  # fmt: skip
            for key in ("weight", "bias"):
                if module.affine:
                    setattr(made, key, getattr(module, key))
            for key in ("running_mean", "running_var", "num_batches_tracked"):
                setattr(made, key, getattr(module, key))
            made.training = module.training
            return made
        for key, child in module.named_children():
            setattr(module, key, cls.convert_sync_batchnorm(child, process_set))
        return module


def warn_of_torchs_norm(model: torch.nn.Module, process_set: ProcessSet) -> None:
    """Where torch's own SyncBatchNorm would take each worker's own statistics, in silence: it has no group."""
    if process_set.size() == 1 or _job.current().mode == "ddp" or (dist.is_available() and dist.is_initialized()):
        return
    if any(isinstance(module, torch.nn.SyncBatchNorm) for module in model.modules()):
        warn_once(
            "the model has torch.nn.SyncBatchNorm, which without a group of torch.distributed takes each worker's own mean "
            "and variance: psring.torch.SyncBatchNorm.convert_sync_batchnorm(model"
            f"{'' if process_set is global_process_set else ', process_set'}) takes those of all workers' batches"
        )
