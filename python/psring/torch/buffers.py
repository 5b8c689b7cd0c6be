"""A model's buffers, such as the running mean of a batch norm: rank 0's for all ranks."""

from typing import Dict, List, Sequence, Tuple

import torch

from .. import _job
from ..process_sets import ProcessSet
from ._tensors import NO_DATA, bytes_of, check_bytes, copy_all, describe, num_bytes
from .collectives import broadcast_


def _take(buffers: Sequence[torch.Tensor], mine: torch.Tensor, theirs: torch.Tensor) -> None:
    """Writes to the buffers whose bytes differ: a graph that reads another one may be kept.

    Args:
        mine, theirs: the bytes of all buffers, one after the other, in the host's memory.
    """
    sizes = [num_bytes(buffer) for buffer in buffers]
    differ = [not torch.equal(a, b) for a, b in zip(mine.split(sizes), theirs.split(sizes))]
    if not any(differ):
        return
    parts = theirs.to(buffers[0].device).split(sizes)
    by_dtype: Dict[torch.dtype, List[Tuple[torch.Tensor, torch.Tensor]]] = {}
    for buffer, part, differs in zip(buffers, parts, differ):
        if differs:
            by_dtype.setdefault(buffer.dtype, []).append((buffer, part.view(buffer.dtype).view(buffer.shape)))
    for pairs in by_dtype.values():
        copy_all(pairs)


class Buffers:
    """The buffers of a model, as they are named now; each may become another tensor later."""

    def __init__(self, model: torch.nn.Module, process_set: ProcessSet):
        self._process_set = process_set
        self._places: List[Tuple[str, torch.nn.Module, str]] = []
        seen = set()
        for prefix, module in model.named_modules():
            for key, buffer in module._buffers.items():
                if buffer is None or id(buffer) in seen or buffer.layout != torch.strided or buffer.numel() == 0:
                    continue
                seen.add(id(buffer))
                name = f"{prefix}.{key}" if prefix else key
                if buffer.device.type == "meta":
                    raise TypeError(f"the buffer {name} is {NO_DATA}")
                check_bytes(buffer, f"the broadcast of buffer {name}")
                self._places.append((name, module, key))

    def described(self) -> List[str]:
        """What must be the same on all ranks."""
        return [f"buffer {i}, {name} {describe(m._buffers[key])}" for i, (name, m, key) in enumerate(self._places)]

    def travel(self) -> bool:
        """Whether broadcast() has anything to do; the same on all ranks."""
        return bool(self._places) and self._process_set.size() > 1

    def broadcast(self, name: str) -> None:
        """Makes them those of the set's first rank, with one transfer for each device."""
        if not self.travel():
            return
        by_device: Dict[torch.device, List[torch.Tensor]] = {}
        for name_of, module, key in self._places:
            buffer = module._buffers.get(key)
            if buffer is None:
                raise RuntimeError(
                    f"the buffer {name_of} is gone: all ranks keep the buffers that the model had when "
                    "DistributedOptimizer was made, or pass broadcast_buffers=False"
                )
            by_device.setdefault(buffer.device, []).append(buffer.detach())
        root = self._process_set.ranks[0]
        with torch.no_grad():
            for number, buffers in enumerate(by_device.values()):
                # The largest elements first, so that each buffer's bytes are where its dtype may lie.
                buffers.sort(key=lambda buffer: -buffer.element_size())
                # As bytes, because the library does not know every dtype that a buffer may have.
                mine = torch.cat([bytes_of(buffer) for buffer in buffers]).to("cpu")
                theirs = mine if _job.rank() == root else mine.clone()
                broadcast_(theirs, root, f"{name}.{number}", self._process_set)
                if theirs is not mine:
                    _take(buffers, mine, theirs)


__all__ = ["Buffers"]
