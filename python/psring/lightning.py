"""A strategy for Lightning's Trainer: the workers of a psring job, in any topology.

    from psring.lightning import PsringStrategy

    trainer = lightning.Trainer(strategy=PsringStrategy())

The job's processes each run the script, as `psring run` starts them, and the Trainer of
each is one worker. Lightning (2.x) gives every worker its part of the data, and this
strategy makes the optimizers of configure_optimizers() distributed.
"""

import contextlib
import importlib.util
import inspect
import sys
from typing import Any, Dict, Iterator, List, Optional

import torch

from . import torch as ps

if not any(map(importlib.util.find_spec, ("lightning", "pytorch_lightning"))):
    raise ImportError("psring.lightning needs Lightning: pip install lightning")

# Two packages have the same classes, and a Trainer takes those of its own.
if importlib.util.find_spec("lightning") is None or (
    "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
):
    from pytorch_lightning.callbacks import Callback
    from pytorch_lightning.plugins.environments import LightningEnvironment
    from pytorch_lightning.strategies import ParallelStrategy
else:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.plugins.environments import LightningEnvironment
    from lightning.pytorch.strategies import ParallelStrategy

from lightning_utilities.core.rank_zero import rank_zero_only
from torchmetrics import Metric

_OPS = {"mean": ps.Average, "avg": ps.Average, "sum": ps.Sum, "min": ps.Min, "max": ps.Max, "product": ps.Product}


class _Job(LightningEnvironment):
    """The ranks of the job, for Lightning."""

    @property
    def creates_processes_externally(self) -> bool:
        return True

    def world_size(self) -> int:
        return ps.size()

    def set_world_size(self, size: int) -> None:
        pass

    def global_rank(self) -> int:
        return ps.rank()

    def set_global_rank(self, rank: int) -> None:
        pass

    def local_rank(self) -> int:
        return ps.local_rank()

    def node_rank(self) -> int:
        return ps.cross_rank()

    def teardown(self) -> None:
        pass


def _op(reduce_op: Any) -> Any:
    """psring's operation for Lightning's name, or for one of torch.distributed's ReduceOp."""
    name = "mean" if reduce_op is None else str(reduce_op).rsplit(".", 1)[-1].lower()
    if name not in _OPS:
        raise ValueError(f"reduce_op={reduce_op!r} is not supported by PsringStrategy: use one of {', '.join(_OPS)}")
    return _OPS[name]


def _check_group(group: Any) -> None:
    if group is not None and group is not torch.distributed.group.WORLD:  # None, but in mode ddp
        raise ValueError("PsringStrategy reduces over all workers: leave out the process group")


def _gather(tensor: torch.Tensor, group: Any = None) -> List[torch.Tensor]:
    """Every worker's tensor, of whatever shape: what torchmetrics calls with each state of a metric."""
    _check_group(group)
    shapes = ps.allgather_object(tuple(tensor.shape))
    flat = ps.allgather(tensor.detach().reshape(-1))
    parts = flat.split([torch.Size(shape).numel() for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(parts, shapes)]


class _End(Callback):  # type: ignore[misc]
    """The first of a Trainer's callbacks: what the others write to parameters at the end of fit() stays."""

    def on_train_end(self, trainer: Any, module: Any) -> None:
        trainer.strategy._close()


class PsringStrategy(ParallelStrategy):  # type: ignore[misc]
    """Trains a LightningModule in a psring job. Calls psring.torch.init() if the script has not.

    Before the first step, parameters and buffers become rank 0's. Where workers are allowed to be
    steps apart (ssp, async), validation, checkpoints and the end of fit() (before on_train_end of
    callbacks) wait until all have the same parameters. What callbacks then write there becomes rank 0's.

    Args:
        accelerator, checkpoint_io, precision_plugin: Lightning's, as other strategies take them.
        options: of psring.torch.DistributedOptimizer, for every optimizer of the module: `update`,
            `compress`, `bucket_mb` ... Not `model` and `named_parameters`, which come from
            the module, nor `backward_passes_per_step`: Trainer(accumulate_grad_batches=) counts.
            With update="fused" and Trainer(gradient_clip_val=), or manual optimization, `overlap`
            is False unless it is given, so that each worker's gradients are clipped, or come together,
            before they leave. `scaler` is that of Trainer(precision="16-mixed").

    Errors: ValueError for options that belong to Lightning, and where the Trainer has fewer
    devices than this host has workers.
    """

    strategy_name = "psring"
    model: Any  # of the base class
    optimizers: Any

    def __init__(
        self, accelerator: Any = None, checkpoint_io: Any = None, precision_plugin: Any = None, **options: Any
    ):
        for name in ("model", "named_parameters", "backward_passes_per_step"):
            if name in options:
                raise ValueError(f"PsringStrategy({name}=...): Lightning sets this itself, leave it out")
        known = set(inspect.signature(ps.DistributedOptimizer).parameters) - {"optimizer"}
        if not known.issuperset(options):
            wrong = min(set(options) - known)
            raise TypeError(f"PsringStrategy({wrong}=...): it has no such option, but {', '.join(sorted(known))}")
        if not ps.is_initialized():
            ps.init()
        super().__init__(accelerator, None, _Job(), checkpoint_io, precision_plugin)
        self._options = options
        self._distributed: List[Any] = []  # optimizers, within fit()
        self._were_apart = False  # whether the workers of the last fit() may have been at different steps
        self._end = _End()
        self._trainer: Any = None
        rank_zero_only.rank = ps.rank()  # type: ignore[attr-defined]  # who logs, and who writes files

    # ---- Place ---------------------------------------------------------------

    @property
    def is_distributed(self) -> bool:
        return True  # so Lightning adds a DistributedSampler

    @property
    def distributed_sampler_kwargs(self) -> Dict[str, Any]:
        return {"num_replicas": ps.size(), "rank": ps.rank()}

    @property
    def root_device(self) -> torch.device:
        devices = self.parallel_devices or [torch.device("cpu")]
        if devices[0].type == "cpu":
            return devices[0]
        if ps.local_rank() >= len(devices):
            raise ValueError(
                f"this host has {ps.local_size()} workers, and its Trainer {len(devices)} devices: give "
                f'Trainer(devices="auto"), and start no more workers than the host has GPUs, or Trainer(accelerator="cpu")'
            )
        return devices[ps.local_rank()]

    def model_to_device(self) -> None:
        self.model.to(self.root_device)

    # ---- Training ------------------------------------------------------------

    def setup(self, trainer: Any) -> None:
        self._trainer = trainer
        if self._layer_sync is not None:
            self.model = ps.SyncBatchNorm.convert_sync_batchnorm(self.model)
        for metric in self.model.modules():
            if isinstance(metric, Metric) and metric.dist_sync_fn is None:
                metric.dist_sync_fn, metric.distributed_available_fn = _gather, ps.is_initialized
        super().setup(trainer)

    def setup_optimizers(self, trainer: Any) -> None:
        super().setup_optimizers(trainer)
        options, scaler = dict(self._options), getattr(self.precision_plugin, "scaler", None)
        if trainer.gradient_clip_val or not self.lightning_module.automatic_optimization:
            options.setdefault("overlap", False)
        if scaler is not None:
            options.setdefault("scaler", scaler)
        named = list(self.lightning_module.named_parameters())
        for i, optimizer in enumerate(self.optimizers):
            model = self.lightning_module if i == 0 else None  # once: it makes parameters and buffers rank 0's
            ps.DistributedOptimizer(optimizer, named_parameters=named, model=model, **options)
            if scaler is None:  # the mark of an optimizer that unscales by itself, whose gradients Lightning does not clip
                optimizer.__dict__.pop("_step_supports_amp_scaling", None)
            self._distributed.append(optimizer)
        self.optimizers = list(self.optimizers)  # Lightning's wrappers take up what was added
        trainer.callbacks.insert(0, self._end)

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Within it, backward() only adds to p.grad: for accumulate_grad_batches."""
        with contextlib.ExitStack() as stack:
            for optimizer in self._distributed:
                stack.enter_context(optimizer.no_sync())
            yield

    def _synchronize(self) -> None:
        """Makes all workers' parameters the same, between steps of fit()."""
        for optimizer in self._distributed:
            optimizer.synchronize_parameters()

    def on_validation_start(self) -> None:
        self._synchronize()

    def lightning_module_state_dict(self) -> Dict[str, Any]:
        if not self._is_alone():
            self._synchronize()
        return super().lightning_module_state_dict()  # type: ignore[no-any-return]

    def _close(self) -> None:
        """All workers' parameters become the same, and the script's own again."""
        self._synchronize()
        self._were_apart = any(not optimizer._psring.settings.synchronous for optimizer in self._distributed)
        for optimizer in self._distributed:
            optimizer.close()
        self._distributed = []
        self.optimizers = list(self.optimizers)

    def on_train_end(self) -> None:
        """Comes after that of callbacks, which may have written averages of weights of other steps on each worker."""
        if self._were_apart:
            ps.broadcast_parameters(self.lightning_module.state_dict())

    def _is_alone(self) -> bool:
        """After an error, of which the other workers do not know: they are not here."""
        return self._trainer is not None and self._trainer.state.status == "interrupted"

    def teardown(self) -> None:
        if self._trainer is not None and self._end in self._trainer.callbacks:
            self._trainer.callbacks.remove(self._end)
        if self._distributed and not self._is_alone():
            self._close()  # where fit() had nothing to train
        self._distributed = []
        super().teardown()

    # ---- Between workers -----------------------------------------------------

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """The reduction of every worker's tensor; what is no tensor comes back as it is. The mean of whole numbers
        is a float."""
        _check_group(group)
        if not isinstance(tensor, torch.Tensor):
            return tensor
        op = _op(reduce_op)
        return ps.mean(tensor) if op is ps.Average else ps.allreduce(tensor, op=op)

    def barrier(self, name: Optional[str] = None) -> None:
        if not self._is_alone():
            ps.barrier()

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return ps.broadcast_object(obj, root_rank=src)

    def all_gather(self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False) -> torch.Tensor:
        """Shape (workers, *tensor.shape)."""
        _check_group(group)
        if tensor.numel() == 0:
            return tensor.new_empty(ps.size(), *tensor.shape)
        with torch.set_grad_enabled(sync_grads and torch.is_grad_enabled()):
            return ps.allgather(tensor.unsqueeze(0))


__all__ = ["PsringStrategy"]
