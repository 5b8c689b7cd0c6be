"""Models of the library's and their settings, without any framework.

The DistributedOptimizers of psring.torch and psring.keras and psring.jax's FusedOptimizer
stand on them.
"""

import ctypes
import json
import os
import threading
import weakref
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from . import _job, _lib, _settings, collectives
from .process_sets import ProcessSet, global_process_set


def next_name(process_set: ProcessSet = global_process_set) -> str:
    """A name for the next model of a set: ranks outside of the set do not count it."""
    return collectives.lasting_name("model", process_set)


# ---- Settings ----------------------------------------------------------------


def choose_sync(job: _job.Job, sync: Optional[str], staleness: Optional[int]) -> Tuple[Optional[str], Optional[int]]:
    """sync and staleness: arguments first, then the job's defaults. None: bsp."""
    sync, staleness = _settings.parse_sync(sync, staleness)
    if sync is None:
        sync = job.defaults["sync"]
        staleness = staleness if staleness is not None else job.defaults["staleness"]
    bounded = sync is not None and _lib.policies()[sync].bounded
    if bounded and staleness is None:
        staleness = job.defaults["staleness"]
    if job.mode != "ps" and not _settings.takes_steps_together(sync):
        raise ValueError(f'sync="{sync}" needs mode="ps"; this job is in mode "{job.mode}"')
    if staleness is not None and not bounded:
        takers = " or ".join(f'"{policy.name}"' for policy in _lib.policies().values() if policy.bounded)
        raise ValueError(f"staleness={staleness} needs sync={takers}")
    return sync, staleness


def choose_update(job: _job.Job, update: Optional[str], sync: Optional[str]) -> str:
    """"local" or "fused": the argument first, then the job's default, then what `sync` allows."""
    together = _settings.takes_steps_together(sync)
    update = update or job.defaults["update"] or ("local" if together else "fused")
    if update not in ("local", "fused"):
        raise ValueError(f'update={update!r}: it is "local" or "fused"')
    if update == "local" and not together:
        raise ValueError(
            f'sync="{sync}" applies every gradient at the servers, so update="local" cannot work: use update="fused"'
        )
    return update


def local_remedy(together: bool) -> str:
    """For what update="fused" cannot do. `together`: whether "local" is possible with this job's sync."""
    return 'use update="local"' if together else 'use update="local" with sync="bsp" or in mode "ring"'


def choose_compress(job: _job.Job, compress: Optional[str]) -> str:
    return _settings.compress(compress or job.defaults["compress"] or _settings.DEFAULTS["compress"])


def choose_bucket_mb(job: _job.Job, bucket_mb: Optional[float]) -> float:
    mb = bucket_mb if bucket_mb is not None else job.defaults["bucket_mb"]
    return _settings.bucket_mb(_settings.DEFAULTS["bucket_mb"] if mb is None else mb)


def model_options(
    update: str, sync: Optional[str], staleness: Optional[int], compress: str, bucket_mb: float
) -> Dict[str, Any]:
    """Of psring_open_model, but for what depends on the tensors."""
    options = {
        "bucket_mb": bucket_mb, "update": update, "sync": sync, "staleness": staleness, "compress": compress,
    }  # fmt: skip
    return {key: value for key, value in options.items() if value is not None}


# What the library's optimizers have besides the learning rate, and the defaults: names
# and numbers are torch.optim's.
HYPERPARAMETERS: Dict[str, Dict[str, Any]] = {
    "sgd": {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
    "adam": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "adamw": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
}


def optimizer_options(name: str, values: Mapping[str, Any]) -> Dict[str, Any]:
    """One of the `groups` of psring_open_model, from `lr` and the hyperparameters."""
    options = {"name": name, "lr": float(values["lr"]), "weight_decay": float(values["weight_decay"])}
    if name != "sgd":
        beta1, beta2 = values["betas"]
        options.update(beta1=float(beta1), beta2=float(beta2), epsilon=float(values["eps"]))
    elif values["momentum"]:
        options.update(name="nesterov" if values["nesterov"] else "momentum", momentum=float(values["momentum"]))
    return options


def number(what: str, value: Any, above: float = float("inf")) -> float:
    """A float from 0 on and below `above`. Errors name `what`, and the rank."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"rank {_job.rank()}: {what}={value!r} is not a number") from None
    if not 0.0 <= result < above:
        limit = "" if above == float("inf") else f", below {above:g}"
        raise ValueError(f"rank {_job.rank()}: {what}={result:g}: pass a number from 0 on{limit}")
    return result


def is_sampled(steps: int) -> bool:
    """After 1, 2, 4, ... 64, 128, 192, ... steps: for what costs a look at memory, or a wait for a GPU."""
    return steps % 64 == 0 or (steps < 64 and steps & (steps - 1) == 0)


def out_of_step(error: BaseException) -> bool:
    """Whether one rank makes a step, and another one something else."""
    return "takes part in collective" in str(error) or "waits for step" in str(error)


# ---- Models ------------------------------------------------------------------


class _Memory:
    """A model's memory. It is freed once the model is closed, or its job has ended, and nothing lies over it."""

    of_job: List["_Memory"] = []

    def __init__(self, parameters: int):
        self._parameters, self._pid = parameters, os.getpid()
        self._users, self._closed = 0, False
        self._lock = threading.RLock()  # a collection of garbage may come while it is held
        _Memory.of_job.append(self)

    def used_by(self, holder: Any) -> None:
        """As long as this object lives."""
        with self._lock:
            self._users += 1
        weakref.finalize(holder, self._unused).atexit = False

    def close(self) -> None:
        with self._lock:
            _Memory.of_job.remove(self)
            self._closed = True
            self._free()

    def _unused(self) -> None:
        with self._lock:
            self._users -= 1
            self._free()

    def _free(self) -> None:
        if self._closed and self._users == 0 and self._pid == os.getpid():
            _lib.library().psring_free_model(self._parameters)

    @staticmethod
    def job_has_ended() -> None:
        memories, _Memory.of_job = _Memory.of_job, []
        for memory in memories:
            with memory._lock:
                memory._closed = True
                memory._free()


_job.after_leaving(_Memory.job_has_ended)


class Model:
    """A model of the library's. All workers open it, with the same arguments.

    Args:
        name: of the model, the same on all workers.
        tensors: (name, shape) of each, in the order of the forward pass.
        options: of psring_open_model, but for the tensors.
    """

    def __init__(self, name: str, tensors: Sequence[Tuple[str, Sequence[int]]], options: Dict[str, Any]):
        tensors = [(_lib.encoded(tensor_name).decode(), shape) for tensor_name, shape in tensors]
        request = {"id": name, "tensors": [{"name": n, "shape": list(shape)} for n, shape in tensors], **options}
        library = _lib.library()
        operation = _lib.Operation(library.psring_open_model(_lib.encoded_json(request)))
        operation.wait()
        number = ctypes.c_int64()
        operation.result(ctypes.addressof(number), 8)
        operation.release()
        self.name, self.number = name, int(number.value)
        about = json.loads(_lib.text(library.psring_model(self.number)))
        self.num_elements: int = about["num_elements"]
        self.num_buckets: int = about["num_buckets"]
        self.slot_names = about.get("slot_names", [])
        # By tensor, as they were given: {"begin", "size", "bucket"}.
        self.layout = about["tensors"]
        # What sums in mode ring: "host" or "nccl".
        self.ring_backend: str = about.get("ring_backend", "")
        # Flat memory of num_elements float32 each, on the options' "device".
        self.gradients_address: int = library.psring_gradients(self.number)
        self.parameters_address: int = library.psring_parameters(self.number)
        self.memory = _Memory(self.parameters_address)

    def floats_at(self, address: int, number: Optional[int] = None) -> Any:
        """So many float32 numbers there, by default all of the model's, in the host's memory, with the buffer
        protocol."""
        array = (ctypes.c_float * (self.num_elements if number is None else number)).from_address(address)
        self.memory.used_by(array)
        return array

    def begin_at(self, slots: Sequence[int] = (), keep: Any = None) -> None:
        """Everybody's parameters and optimizer state become rank 0's; slots are addresses
        of the host's memory."""
        array = (ctypes.c_void_p * len(slots))(*slots) if slots else None
        number = _lib.library().psring_begin(self.number, array, len(slots))
        _lib.Operation(number, (keep, array)).finish()

    def set_rates(self, rates: Sequence[float]) -> None:
        array = (ctypes.c_double * len(rates))(*rates)
        _lib.check(_lib.library().psring_set_rates(self.number, array, len(rates)))

    def set_stream(self, stream: int) -> None:
        """On a GPU: the CUDA stream that this process works in from now on."""
        _lib.check(_lib.library().psring_set_stream(self.number, stream))

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

    def updates(self) -> int:
        """That the optimizer has made, if all workers are at this one's step: in ssp and async each step of each worker
        is one."""
        return _lib.check(_lib.library().psring_updates(self.number))

    def _meet(self, what: str) -> None:
        """Waits for the other ranks. One that makes a step instead is found at once,
        which only collectives do."""
        collectives.barrier(name=f"{what} of {self.name}")

    def synchronise(self) -> None:
        self._meet("synchronise")
        _lib.Operation(_lib.library().psring_synchronise(self.number)).finish()

    def fetch_slots(self) -> List[bytearray]:
        """The optimizer's state, float32 in flat memory by slot; all ranks call it."""
        slots = [bytearray(4 * self.num_elements) for _ in self.slot_names]
        if not slots:
            return []
        self._meet("state")
        views = [(ctypes.c_char * len(slot)).from_buffer(slot) for slot in slots]
        array = (ctypes.c_void_p * len(slots))(*map(ctypes.addressof, views))
        number = _lib.library().psring_fetch_slots(self.number, array, len(slots))
        _lib.Operation(number, (array, views)).finish()
        return [collectives.broadcast_(slot) for slot in slots]

    def fetch_updates(self) -> int:
        """As updates(), but wherever the workers are; all ranks call it, between steps."""
        return int(collectives.sum(self.updates())) // _job.size()

    def traffic(self) -> Dict[str, Any]:
        return json.loads(_lib.text(_lib.library().psring_traffic(self.number)))

    def close(self) -> None:
        """All workers close it. Its memory stays as long as something lies over it."""
        self._meet("end")
        _lib.Operation(_lib.library().psring_close_model(self.number)).finish()
        self.memory.close()
