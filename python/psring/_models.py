"""Models of the library's and their settings, without any framework.

psring.torch's DistributedOptimizer and psring.jax's FusedOptimizer stand on them.
"""

import ctypes
import json
from typing import Any, Dict, Optional, Sequence, Tuple

from . import _job, _lib

_count = 0


def next_name() -> str:
    """A name for this process's next model: "model0", "model1" ..."""
    global _count
    name = f"model{_count}"
    _count += 1
    return name


# ---- Settings ----------------------------------------------------------------


def choose_sync(job: _job.Job, sync: Optional[str], staleness: Optional[int]) -> Tuple[Optional[str], Optional[int]]:
    """sync and staleness: arguments first, then the job's defaults. None: bsp."""
    sync, staleness = _job.parse_sync(sync, staleness)
    if sync is None:
        sync = job.defaults["sync"]
        staleness = staleness if staleness is not None else job.defaults["staleness"]
    elif sync == "ssp" and staleness is None:
        staleness = job.defaults["staleness"]
    if sync not in (None, "bsp") and job.mode != "ps":
        raise ValueError(f'sync="{sync}" needs mode="ps"; this job is in mode "{job.mode}"')
    if staleness is not None and sync != "ssp":
        raise ValueError(f'staleness={staleness} needs sync="ssp"')
    return sync, staleness


def choose_compress(job: _job.Job, compress: Optional[str]) -> str:
    compress = compress or job.defaults["compress"] or "none"
    if compress.partition(":")[0] not in ("none", "fp16", "bf16", "int8", "onebit", "topk"):
        raise ValueError(f'compress={compress!r}: it is "none", "fp16", "bf16", "int8", "onebit" or "topk:F"')
    return compress


def choose_bucket_mb(job: _job.Job, bucket_mb: Optional[float]) -> float:
    mb = bucket_mb if bucket_mb is not None else job.defaults["bucket_mb"]
    if mb is not None and mb <= 0:
        raise ValueError(f"bucket_mb={mb}: it is above 0")
    return 25 if mb is None else mb


def model_options(
    update: str, sync: Optional[str], staleness: Optional[int], compress: str, bucket_mb: float
) -> Dict[str, Any]:
    """Of psring_open_model, but for what depends on the tensors."""
    options = {
        "bucket_mb": bucket_mb, "update": update, "sync": sync, "staleness": staleness, "compress": compress,
    }  # fmt: skip
    return {key: value for key, value in options.items() if value is not None}


def out_of_step(error: BaseException) -> bool:
    """Whether ranks of a ring have called different things."""
    return "takes part in collective" in str(error)


# ---- Models ------------------------------------------------------------------


class Model:
    """A model of the library's. All workers open it, with the same arguments.

    Args:
        name: of the model, the same on all workers.
        tensors: (name, shape) of each, in the order of the forward pass.
        options: of psring_open_model, but for the tensors.
    """

    def __init__(self, name: str, tensors: Sequence[Tuple[str, Sequence[int]]], options: Dict[str, Any]):
        request = {"id": name, "tensors": [{"name": n, "shape": list(shape)} for n, shape in tensors], **options}
        library = _lib.library()
        operation = _lib.Operation(library.psring_open_model(json.dumps(request).encode()))
        operation.wait()
        number = ctypes.c_int64()
        operation.result(ctypes.addressof(number), 8)
        operation.release()
        self.number: int = number.value
        about = json.loads(_lib.text(library.psring_model(self.number)))
        self.num_elements: int = about["num_elements"]
        self.num_buckets: int = about["num_buckets"]
        self.slot_names = about.get("slot_names", [])
        # By tensor, as they were given: {"begin", "size", "bucket"}.
        self.layout = about["tensors"]
        # Flat memory of num_elements float32 each.
        self.gradients_address: int = library.psring_gradients(self.number)
        self.parameters_address: int = library.psring_parameters(self.number)

    def begin_at(self, slots: Sequence[int] = (), keep: Any = None) -> None:
        """Everybody's parameters and optimizer state become rank 0's; slots are addresses."""
        array = (ctypes.c_void_p * len(slots))(*slots) if slots else None
        number = _lib.library().psring_begin(self.number, array, len(slots))
        _lib.Operation(number, (keep, array)).finish()

    def set_rates(self, rates: Sequence[float]) -> None:
        array = (ctypes.c_double * len(rates))(*rates)
        _lib.check(_lib.library().psring_set_rates(self.number, array, len(rates)))

    def submit(self, bucket: int) -> None:
        _lib.check(_lib.library().psring_submit(self.number, bucket))

    def finish(self) -> None:
        try:
            _lib.check(_lib.library().psring_finish(self.number))
        except _lib.InvalidArgumentError as error:
            if not out_of_step(error):
                raise
            raise type(error)(
                f"rank {_job.rank()} makes a step, and another rank does something else: all ranks call "
                f"step(), add_param_group() and other collectives at the same point ({error})"
            ) from None

    def step(self) -> int:
        return _lib.check(_lib.library().psring_step(self.number))

    def synchronise(self) -> None:
        _lib.Operation(_lib.library().psring_synchronise(self.number)).finish()

    def save(self, directory: str) -> None:
        _lib.Operation(_lib.library().psring_save(self.number, directory.encode())).finish()

    def traffic(self) -> Dict[str, Any]:
        return json.loads(_lib.text(_lib.library().psring_traffic(self.number)))

    def close(self) -> None:
        """All workers close it; its memory is gone."""
        _lib.Operation(_lib.library().psring_close_model(self.number)).finish()
