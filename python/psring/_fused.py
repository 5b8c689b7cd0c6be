"""Arrays that the servers or the ring's ranks update, without any framework but NumPy.

psring.jax's FusedOptimizer and psring.keras's DistributedOptimizer stand on them.
"""

import weakref
import zlib
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from . import _job, _models

# Of this process, until shutdown takes their memory.
_open: "weakref.WeakSet[FusedArrays]" = weakref.WeakSet()


def _forget_open() -> None:
    for arrays in _open:
        arrays.forget()
    _open.clear()


_job.at_shutdown(_forget_open)


class FusedArrays:
    """A model of the library's whose parameters are float32 arrays. All ranks make it,
    with the same arguments but for the values, then call begin() once.

    One thread at a time calls it: its user has a lock.

    Args:
        name: of the model, the same on all ranks.
        arrays: the parameters with their names; not all of them empty.
        options: of psring_open_model, with the `groups`.
        groups_of: by array, the number of its group; by default all are in the first.
    """

    def __init__(
        self,
        name: str,
        arrays: Sequence[Tuple[str, np.ndarray]],
        options: Dict[str, Any],
        groups_of: Optional[Sequence[int]] = None,
    ):
        groups_of = [0] * len(arrays) if groups_of is None else groups_of
        filled = [(name_of, array.shape) for name_of, array in arrays if array.size]
        of_filled = [group for group, (_, array) in zip(groups_of, arrays) if array.size]
        model = _models.Model(name, filled, {**options, "tensor_groups": of_filled})
        self.model: Optional[_models.Model] = model
        # By array: its place in flat memory, and views of the library's memory.
        self.ranges: List[slice] = []
        self.parameters: List[np.ndarray] = []
        self._gradients: List[np.ndarray] = []
        # By bucket: the arrays whose gradients go with it.
        self._of_bucket: List[List[int]] = [[] for _ in range(model.num_buckets)]
        parameters = np.frombuffer(model.floats_at(model.parameters_address), dtype=np.float32)
        gradients = np.frombuffer(model.floats_at(model.gradients_address), dtype=np.float32)
        places = iter(model.layout)
        for index, (_, array) in enumerate(arrays):
            begin = end = 0
            if array.size:
                place = next(places)
                begin, end = place["begin"], place["begin"] + place["size"]
                self._of_bucket[place["bucket"]].append(index)
            self.ranges.append(slice(begin, end))
            self.parameters.append(parameters[begin:end].reshape(array.shape))
            self._gradients.append(gradients[begin:end].reshape(array.shape))
            self.parameters[-1][...] = array
        self._rates = [group["lr"] for group in options["groups"]]
        self._last_crc: Optional[int] = None

    def begin(self, slots: Sequence[np.ndarray] = ()) -> None:
        """Everybody's parameters become rank 0's, and the optimizer's state its `slots`."""
        assert self.model is not None
        self.model.begin_at([slot.ctypes.data for slot in slots], slots)
        _open.add(self)

    def step(self, gradients: Sequence[Any], rates: List[float], factor: float = 1.0) -> None:
        """Gradients leave bucket by bucket, multiplied by `factor`; afterwards the parameters
        are those of the next step. None: zeros. `rates`: of each group."""
        model = self.model
        assert model is not None
        if rates != self._rates:
            model.set_rates(rates)
            self._rates = rates
        for bucket, indices in enumerate(self._of_bucket):
            for index in indices:
                place, gradient = self._gradients[index], gradients[index]
                place[...] = 0.0 if gradient is None else np.asarray(gradient)
                if factor != 1.0:
                    place *= np.float32(factor)
            model.submit(bucket)
        model.finish()

    def flat(self, arrays: Sequence[Any]) -> np.ndarray:
        """A slot for begin(), of arrays like the parameters."""
        assert self.model is not None
        slot: np.ndarray = np.zeros(self.model.num_elements, np.float32)
        for at, array in zip(self.ranges, arrays):
            slot[at] = np.asarray(array, np.float32).reshape(-1)
        return slot

    def fetch_slots(self) -> Dict[str, List[np.ndarray]]:
        """The optimizer's state, by slot: arrays like the parameters. All ranks call it, between steps."""
        assert self.model is not None
        slots = {}
        for name, slot in zip(self.model.slot_names, self.model.fetch_slots()):
            values = np.frombuffer(slot, dtype=np.float32)
            slots[name] = [values[at].reshape(p.shape).copy() for at, p in zip(self.ranges, self.parameters)]
        return slots

    def crc(self) -> Optional[int]:
        """Of the parameters as they are, or as they were when close() was called."""
        if self.model is None:
            return self._last_crc
        crc = 0
        for parameter in self.parameters:
            crc = zlib.crc32(parameter.reshape(-1).view(np.uint8).data, crc)
        return crc

    def close(self) -> None:
        """All ranks close it."""
        if self.model is None:
            return
        self._last_crc = self.crc()
        model, self.model = self.model, None
        _open.discard(self)
        self.parameters, self._gradients = [], []
        model.close()

    def forget(self) -> None:
        """Its memory goes with the job."""
        self.model = None
