"""What a DistributedOptimizer was asked for, checked and completed."""

import math
from typing import Any, Dict, List, NamedTuple, Optional, Type

from .. import _job, _models, _settings
from ..collectives import Average, ReduceOp, Sum, op_code
from ..process_sets import ProcessSet, check_process_set, global_process_set
from .compression import BF16Compressor, Compressor, FP16Compressor, NoneCompressor, native_name


class Settings(NamedTuple):
    op: ReduceOp
    process_set: ProcessSet
    predivide: float
    passes: int
    # None: the library's default, bsp.
    sync: Optional[str]
    staleness: Optional[int]
    fused: bool
    compress: str
    # The same, where the exchange is an allreduce of buckets.
    compression: Type[Compressor]
    bucket_mb: float
    scaler: Any
    sparse_as_dense: bool
    find_unused: bool
    broadcast_buffers: bool
    # Whether gradients leave during backward; else, with "fused", in step().
    overlap: bool
    # init()'s; None: "auto".
    gpu: Optional[str]

    @property
    def synchronous(self) -> bool:
        """Whether all ranks make the same step together."""
        return _settings.takes_steps_together(self.sync)

    @property
    def deferred(self) -> bool:
        """Whether gradients stay with the script until step()."""
        return self.fused and (self.scaler is not None or not self.overlap)

    @property
    def average(self) -> bool:
        return self.op is Average

    @property
    def prescale(self) -> float:
        """Of gradients before the exchange."""
        return 1.0 / self.predivide

    @property
    def postscale(self) -> float:
        """Of means after it."""
        return self.predivide * (self.process_set.size() if self.op is Sum else 1)

    @property
    def local_remedy(self) -> str:
        """For what update="fused" cannot do."""
        return _models.local_remedy(self.synchronous)

    def model_options(self) -> Dict[str, Any]:
        """Of psring_open_model, but for what depends on the tensors."""
        update = "fused" if self.fused else "local"
        return _models.model_options(update, self.sync, self.staleness, self.compress, self.bucket_mb)

    def agreed(self, kind: type) -> List[str]:
        """What must be the same on all ranks, as texts."""
        # The first difference is told. What others follow from comes first.
        parts = {"sync": self.sync or _settings.DEFAULTS["sync"], **self.model_options(), "op": self.op.name, "passes": self.passes}
        parts.update(predivide=self.predivide, sparse_as_dense=self.sparse_as_dense)
        parts.update(find_unused=self.find_unused, scaler=self.scaler is not None)
        parts.update(broadcast_buffers=self.broadcast_buffers, overlap=self.overlap)
        return [f"the optimizer {kind.__name__}"] + [f"{name}={value}" for name, value in parts.items()]


def whole_passes(passes: Any) -> int:
    """backward_passes_per_step=."""
    try:
        whole = int(passes)
    except (TypeError, ValueError, OverflowError):
        whole = 0
    if whole < 1 or whole != passes:
        raise ValueError(f"backward_passes_per_step={passes!r}: it is at least 1, and a whole number")
    return whole


def _divisor(predivide: Any) -> float:
    try:
        divisor = float(predivide)
    except (TypeError, ValueError):
        divisor = 0.0
    if divisor == 0 or not math.isfinite(divisor):
        raise ValueError(f"gradient_predivide_factor={predivide!r}: it is a finite number, and not 0")
    return divisor


_BUCKETS = {"none": NoneCompressor, "fp16": FP16Compressor, "bf16": BF16Compressor}


def make_settings(
    job: _job.Job,
    kind: type,
    *,
    op: ReduceOp,
    compression: Type[Compressor],
    compress: Optional[str],
    process_set: ProcessSet,
    predivide: float,
    passes: int,
    sync: Optional[str],
    staleness: Optional[int],
    update: Optional[str],
    bucket_mb: Optional[float],
    scaler: Any,
    sparse_as_dense: bool,
    find_unused: bool,
    broadcast_buffers: bool,
    overlap: bool,
) -> Settings:
    """Arguments first, then init()'s or the environment's, then defaults."""
    op = Average if op is None else op
    op_code(op)
    check_process_set(process_set)
    predivide = _divisor(predivide)
    if op not in (Average, Sum):
        raise ValueError(f"DistributedOptimizer(op={op.name}): it is Average or Sum")
    if predivide != 1.0 and op is not Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    passes = whole_passes(passes)
    sync, staleness = _models.choose_sync(job, sync, staleness)
    update = _models.choose_update(job, update, sync)
    native = native_name(compression)
    if compress is not None and native not in ("none", compress):
        raise ValueError(f"compression=Compression.{native} and compress={compress!r} differ: give one of them")
    compress = _models.choose_compress(job, compress or (native if native != "none" else None))
    buckets = process_set is not global_process_set and process_set.size() < job.size
    if buckets or job.mode == "ddp":
        where = "over a process set" if buckets else 'in mode "ddp"'
        if update == "fused":
            raise ValueError(f'update="fused" is not possible {where}: use update="local"')
        if compress not in _BUCKETS or (job.mode == "ddp" and compress != "none"):
            raise ValueError(f"compress={compress!r} is not possible {where}")
    if update == "fused":
        remedy = _models.local_remedy(_settings.takes_steps_together(sync))
        if predivide != 1.0:
            raise ValueError(f'gradient_predivide_factor is not supported with update="fused": {remedy}')
        if op is Sum:
            raise ValueError('op=Sum is not supported with update="fused": multiply the learning rate by size()')
        if find_unused:
            raise ValueError(f'find_unused is not supported with update="fused": {remedy}')
    mb = _models.choose_bucket_mb(job, bucket_mb)
    if scaler is not None and not hasattr(scaler, "is_enabled"):
        raise TypeError(f"DistributedOptimizer(scaler={scaler!r}): it is a GradScaler of torch.amp")
    if scaler is not None and not scaler.is_enabled():
        scaler = None
    return Settings(
        op, process_set, predivide, passes, sync, staleness, update == "fused", compress,
        _BUCKETS.get(compress, NoneCompressor), mb, scaler, sparse_as_dense, find_unused, broadcast_buffers,
        overlap, job.defaults["gpu"],
    )  # fmt: skip
