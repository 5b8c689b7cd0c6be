"""Where gradients go: flat memory in buckets, and who exchanges them.

An exchange gives every tensor a place for its gradient and one for what comes
back. submit(bucket) starts a bucket that is full and never blocks; finish() waits
for all of them. order() comes before a thread touches either place. ModelExchange is
the library's own (ring, ps); BucketExchange makes one allreduce a bucket, for process
sets and for mode ddp.
"""

import contextlib
import hashlib
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _job
from .._lib import PsringError
from .._models import Model, is_sampled
from ._tensors import dense_strides, over_gpu_memory, warn_once
from .entry import Entry
from .gpu import StreamOrder, note_model_bytes


# So few that float32 holds the sum of their squares over 300,000 ranks exactly.
_DIGESTS = 8
_FLAGS = 6


def same_numbers(means: torch.Tensor, size: int) -> bool:
    """Whether the ranks that have brought 1, n and n * n, with a whole number n below _DIGESTS each, have the same n. The
    others have brought zeros.

    Args:
        means: of the three over all ranks, in float32.
        size: the number of ranks.
    """
    count, total, squares = (size * means.double()).round().tolist()  # whole again: the mean was rounded
    return count * squares == total * total  # their variance is 0


def _part(flat: torch.Tensor, begin: int, end: int, param: torch.Tensor) -> torch.Tensor:
    """flat[begin:end] in the shape of a parameter, with the elements in the order in which the parameter's
    lie, as with channels_last: optimizers that walk raw memory need it, and so do compiled models."""
    return flat[begin:end].as_strided(param.shape, dense_strides(param))


# Of this process, until shutdown: parameters and gradients may lie in their memory
# for longer than the optimizer lives.
_open: List["ModelExchange"] = []


def _detach_all() -> None:
    for exchange in _open:
        exchange.detach()
    _open.clear()


_job.at_shutdown(_detach_all)


class ModelExchange(Model):
    """A model of the library's, whose memory is tensors.

    Args:
        name: of the model, the same on all workers.
        entries: in the order in which backward makes their gradients ready.
        options: of psring_open_model, but for the tensors.
        gpu: the options' "device", where it is one: the memory is there.
        carries: so many bytes of rank 0's travel to all ranks with each step's gradients, where counts_ranks.
    """

    def __init__(
        self,
        name: str,
        entries: Sequence[Entry],
        options: Dict[str, Any],
        gpu: Optional[torch.device] = None,
        carries: int = 0,
    ):
        forward = list(reversed(entries))
        tensors: List[Tuple[str, Sequence[int]]] = [(e.name, list(e.param.shape)) for e in forward]
        # A rank with data brings 1, h and h * h in elements of their own, and 1, p and p * p of its parameters; see
        # take_part_without_data, settings_agree and parameters_agree. Rank 0 adds what is carried.
        self.counts_ranks = options.get("update") == "local" and options.get("compress", "none") == "none"
        self.carries = carries if self.counts_ranks else 0
        self.carries_now = self.carries > 0  # in this step
        if self.counts_ranks:
            tensors.insert(0, ("psring: ranks with data", [_FLAGS + (self.carries + 1) // 2]))
        self.carried: Callable[[], torch.Tensor]  # the bytes, where the gradients lie
        self.told_settings: Callable[[], bytes] = lambda: b""  # what all ranks' should be in this step
        # Where counts_ranks: digest of the parameters after a step in which is_sampled(steps), if all ranks' should be
        # the same.
        self.told_parameters: Optional[int] = None
        # join() is over, after so many steps of others' in which this rank has brought zeros.
        self.has_joined: Callable[[int], None] = lambda others_steps: None
        self.steps = 0
        if gpu is not None:
            torch.cuda.empty_cache()  # the first backward() has filled it, and the library allocates outside it
        try:
            super().__init__(name, tensors, options)
        except PsringError as error:
            if "does not agree with worker 0: optimizer" not in str(error):
                raise
            raise type(error)(
                f"{error}. All workers begin with the same: load the checkpoint on all of them, or call "
                "broadcast_optimizer_state(optimizer) before the first step"
            ) from None
        self._gpu = gpu
        self.gradients = self._floats(self.gradients_address)
        self.results = self._floats(self.parameters_address)
        self.on_gpu = gpu is not None
        self._streams = None if gpu is None else StreamOrder(gpu, self.set_stream)
        self.places: Dict[str, Tuple[int, int]] = {}
        # A parameter that lies there has a storage of its own: torch.save() writes whole storages.
        self._apart = options.get("update") == "fused"
        self._fused: Dict[int, List["weakref.ref[Entry]"]] = {}  # by bucket; with "fused" alone
        layout = self.layout
        self._flag, self._carried_end, self._flag_bucket = 0, 0, -1
        if self.counts_ranks:
            self._flag, self._flag_bucket = layout[0]["begin"], layout[0]["bucket"]
            self._carried_end = self._flag + layout[0]["size"]
            layout = layout[1:]
        for entry, place in zip(forward, layout):
            begin, end = place["begin"], place["begin"] + place["size"]
            self.places[entry.name] = (begin, end)
            entry.gradient = _part(self.gradients, begin, end, entry.param)
            entry.result = self._result(entry, begin, end)
            entry.bucket = place["bucket"]
            if self._apart:
                self._fused.setdefault(entry.bucket, []).append(weakref.ref(entry))
        self._left_behind: List["weakref.ref[torch.Tensor]"] = []  # parameters of entries that are no more
        for entry in entries:
            entry.left_behind = self._left_behind
        self._entries = [weakref.ref(e) for e in entries]
        _open.append(self)
        if gpu is not None:
            note_model_bytes(gpu, sum(model.gpu_bytes() for model in _open if model._gpu == gpu))

    def gpu_bytes(self) -> int:
        """That the model takes of its GPU."""
        if self._gpu is None:
            return 0
        num_slots = len(self.slot_names) if self.ring_backend == "nccl" else 0
        return 4 * (2 + num_slots) * self.num_elements

    def _result(self, entry: Entry, begin: int, end: int) -> torch.Tensor:
        """Where an entry's elements come back to."""
        if not self._apart:
            return _part(self.results, begin, end, entry.param)
        own = self._floats(self._address_of(begin), end - begin)
        return _part(own, 0, end - begin, entry.param)

    def _address_of(self, element: int) -> int:
        return self.parameters_address + 4 * element

    def _come_home(self) -> None:
        """Results lie in the library's memory again, which torch moves to shared memory of its own where a script
        sends one of their tensors to another process or calls share_memory()."""
        if self._apart:
            homes = ((entry, self._address_of(self.places[entry.name][0])) for entry in self._alive())
            moved = [entry for entry, home in homes if entry.result is not None and entry.result.data_ptr() != home]
        elif self.results.data_ptr() == self.parameters_address:
            return
        else:
            self.results = self._floats(self.parameters_address)
            moved = self._alive()
        for entry in moved:
            entry.result = self._result(entry, *self.places[entry.name])
        if moved and self._apart:
            warn_once(
                "parameters were moved to other memory, as torch.multiprocessing does with what it sends and "
                'model.share_memory() with a model: with update="fused" they lie in psring\'s memory again, so '
                "the other process sees no later step. Send it copies, or use update=\"local\""
            )

    def _alive(self) -> List[Entry]:
        return [entry for entry in (held() for held in self._entries) if entry is not None]

    def part_of_slot(self, slot: torch.Tensor, entry: Entry) -> torch.Tensor:
        """An entry's elements of a flat tensor like those that fetch_slots() gives: they lie as the results
        do, whatever a script has made of the parameter since."""
        assert entry.result is not None
        begin, end = self.places[entry.name]
        return slot[begin:end].as_strided(entry.result.shape, entry.result.stride())

    def _floats(self, address: int, size: Optional[int] = None) -> torch.Tensor:
        """size: all of the model where there is none."""
        size = self.num_elements if size is None else size
        if self._gpu is None:
            return torch.frombuffer(self.floats_at(address, size), dtype=torch.float32)
        return over_gpu_memory(address, size, self._gpu, self.memory.used_by)

    def begin(self, slots: Sequence[torch.Tensor] = ()) -> None:
        """Everybody's parameters and optimizer state become rank 0's."""
        self.order()
        self.begin_at([slot.data_ptr() for slot in slots], slots)

    def order(self) -> None:
        if self._streams is not None:
            self._streams.come_behind()

    def submit(self, bucket: int) -> None:
        if bucket == self._flag_bucket:
            # Not a CRC: of texts of one length, those that collide in one step would do so in every step.
            told = self.told_settings() if self.compares_settings(self.steps + 1) else b""
            # Whether buffers travel along shows always: who expects them would wait for ever.
            digest = self._salted(told) % (_DIGESTS // 2) * 2 + self.carries_now
            flags = [1.0, digest, digest * digest]
            if self.told_parameters is not None:
                digest = self._salted(str(self.told_parameters).encode()) % _DIGESTS
                flags += [1.0, digest, digest * digest]
            elif is_sampled(self.steps) or is_sampled(self.steps - 1):  # else zeros are there
                flags += [0.0, 0.0, 0.0]
            for index, value in enumerate(flags):
                self.gradients[self._flag + index] = value  # a ring leaves its sums there
            if self.carries_now:
                self._send_carried()
        for reference in self._fused.get(bucket, ()):
            entry = reference()
            if entry is not None:
                entry.leaves()
        with self._keeping_device():
            super().submit(bucket)

    def _salted(self, text: bytes) -> int:
        return hashlib.blake2b(text, digest_size=1, salt=self.steps.to_bytes(8, "little")).digest()[0]

    def _carried_part(self, flat: torch.Tensor) -> torch.Tensor:
        return flat[self._flag + _FLAGS : self._carried_end]

    def _send_carried(self) -> None:
        """As one number for every two bytes: float32 holds them, and their sum with zeros, exactly."""
        place = self._carried_part(self.gradients)
        if _job.rank() != 0:
            place.zero_()
            return
        value = self.carried()
        if self.carries % 2:
            value = torch.cat([value, value.new_zeros(1)])
        place.copy_(value.view(torch.int16))

    def carried_by_root(self, otherwise: torch.Tensor) -> torch.Tensor:
        """After finish(): the bytes that rank 0 carried in this step; the others where not all ranks took part in it
        with data. Does not wait for a GPU."""
        size = _job.size()
        numbers = (self._carried_part(self.results) * size).round_().to(torch.int16)
        return torch.where(self._count() > size - 0.5, numbers.view(torch.uint8)[: self.carries], otherwise)

    def _count(self) -> torch.Tensor:
        """After finish(): of the ranks with data."""
        return self.results[self._flag] * _job.size()

    def finish(self) -> None:
        self.order()
        with self._keeping_device():
            super().finish()
        self.steps += 1
        self._come_home()

    def _keeping_device(self) -> Any:
        """The library makes its GPU the thread's current one; the script's stays."""
        return contextlib.nullcontext() if self._gpu is None else torch.cuda.device(self._gpu)

    def synchronise(self) -> None:
        self.order()
        super().synchronise()
        self._come_home()

    def take_part_without_data(self) -> bool:
        """A step with zeros, for a rank that has no more data; update "local" only.
        Whether any rank had data."""
        self.order()
        self.gradients.zero_()
        self.told_parameters = None
        for bucket in range(self.num_buckets):
            with self._keeping_device():
                super().submit(bucket)
        self.finish()
        return float(self.results[self._flag]) != 0.0

    def all_have_data(self) -> bool:
        """After finish(): whether the step was without ranks that have joined. Reads a
        result, and so waits for the GPU where that lies on one."""
        return not self.counts_ranks or float(self._count()) > _job.size() - 0.5

    def compares_settings(self, steps: int) -> bool:
        """After so many steps; only now and then where it takes a wait for the GPU."""
        return not self.on_gpu or is_sampled(steps)

    def settings_agree(self) -> bool:
        """After finish(): whether told_settings() has been the same on all ranks with data, of which another
        step may find out where this one does not. Reads results, as all_have_data() does."""
        return not self.counts_ranks or self._same_from(self._flag)

    def parameters_agree(self) -> bool:
        """After finish(): whether told_parameters has been the same on all ranks that had some, as above; it is taken."""
        told, self.told_parameters = self.told_parameters, None
        return told is None or self._same_from(self._flag + 3)

    def _same_from(self, element: int) -> bool:
        return same_numbers(self.results[element : element + 3], _job.size())

    def _inside(self, tensor: Optional[torch.Tensor]) -> bool:
        if tensor is None or tensor.layout != torch.strided:
            return False
        return self._address_of(0) <= tensor.data_ptr() < self._address_of(self.num_elements)

    def detach(self) -> None:
        """Parameters and gradients that lie in the library's memory move out."""
        left = [param for param in (held() for held in self._left_behind) if param is not None]
        for param in [entry.param for entry in self._alive()] + left:
            if self._inside(param.data):
                param.data = param.data.clone()
            if self._inside(param.grad):
                param.grad = param.grad.clone()  # type: ignore[union-attr]
        # So do this exchange's own tensors, which garbage may keep for long.
        self.gradients = self.results = torch.empty(0, device="cpu")
        for entry in self._alive():
            entry.gradient = entry.result = None

    def close(self) -> None:
        """All workers close it."""
        self.detach()
        _open.remove(self)
        super().close()


class BucketExchange:
    """One allreduce for each bucket; the means come back to where they left.

    Args:
        entries: in the order in which backward makes their gradients ready.
        bucket_mb: a bucket is closed by the tensor that fills it so far.
        start: starts the mean of a bucket's elements in place, given its number;
            what it returns is called to wait for it.
    """

    on_gpu = False
    carries, carries_now = 0, False

    def __init__(
        self,
        entries: Sequence[Entry],
        bucket_mb: float,
        start: Callable[[torch.Tensor, int], Callable[[], Any]],
    ):
        limit = max(1, int(bucket_mb * (1 << 20)) // 4)
        self.gradients = torch.zeros(sum(e.param.numel() for e in entries), dtype=torch.float32, device="cpu")
        self.results = self.gradients
        self._ranges: List[Tuple[int, int]] = []
        begin = end = 0
        for position, entry in enumerate(entries):
            first, end = end, end + entry.param.numel()
            entry.gradient = _part(self.gradients, first, end, entry.param)
            entry.result = entry.gradient
            entry.bucket = len(self._ranges)
            if end - begin >= limit or position + 1 == len(entries):
                self._ranges.append((begin, end))
                begin = end
        self.num_buckets = len(self._ranges)
        self._start = start
        self._waits: List[Callable[[], Any]] = []

    def begin(self, slots: Sequence[torch.Tensor] = ()) -> None:
        pass

    def order(self) -> None:
        pass

    def submit(self, bucket: int) -> None:
        begin, end = self._ranges[bucket]
        self._waits.append(self._start(self.gradients[begin:end], bucket))

    def finish(self) -> None:
        waits, self._waits = self._waits, []
        for wait in waits:
            wait()

    def all_have_data(self) -> bool:
        return True

    def detach(self) -> None:
        pass

    def close(self) -> None:
        pass
