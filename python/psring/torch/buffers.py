"""A model's buffers, such as the running mean of a batch norm: rank 0's for all ranks."""

from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch.nn.modules.batchnorm import _NormBase

from .. import _job
from ..collectives import Max
from ..process_sets import ProcessSet
from ._tensors import NO_DATA, bytes_of, check_bytes, copy_all, describe, num_bytes
from .collectives import allreduce_, broadcast_


# From here on, knowing that nothing has changed is worth a small operation more: a mask, or a table of positions.
_LARGE = 1 << 20


def _differ(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Whether two tensors of bytes do. Eight at a time, where they lie so."""
    size = old.numel() // 8 * 8
    if old.storage_offset() % 8 or new.storage_offset() % 8 or size == 0:
        return (old != new).any()
    words = (old[:size].view(torch.int64) != new[:size].view(torch.int64)).any()
    return words if size == old.numel() else words | (old[size:] != new[size:]).any()


class Buffers:
    """The buffers of a model, as they are named now; each may become another tensor later."""

    def __init__(self, model: torch.nn.Module, process_set: ProcessSet):
        self._process_set = process_set
        self._last: Optional[torch.Tensor] = None  # as all ranks had them after the last transfer of large ones
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

    def num_bytes(self) -> int:
        """Errors: one is gone."""
        return sum(num_bytes(buffer) for _, buffer in self._held())

    def _held(self) -> Iterator[Tuple[torch.nn.Module, torch.Tensor]]:
        """With their modules."""
        for name, module, key in self._places:
            buffer = module._buffers.get(key)
            if buffer is None:
                raise RuntimeError(
                    f"the buffer {name} is gone: all ranks keep the buffers that the model had when "
                    "DistributedOptimizer was made, or pass broadcast_buffers=False"
                )
            yield module, buffer

    def _in_order(self) -> List[Tuple[torch.nn.Module, torch.Tensor]]:
        """The largest elements first, so that in pack() each buffer's bytes are where its dtype may lie."""
        held = ((module, buffer.detach()) for module, buffer in self._held())
        return sorted(held, key=lambda item: -item[1].element_size())

    def pack(self, device: torch.device) -> torch.Tensor:
        """The bytes of all, one after the other, on that device: the library does not know every dtype that a
        buffer may have."""
        with torch.no_grad():
            return torch.cat([bytes_of(buffer).to(device) for _, buffer in self._in_order()])

    def take(self, mine: torch.Tensor, theirs: torch.Tensor) -> None:
        """They become what another rank has packed. Those that differ are written, as a graph that reads another one
        may be kept; which, a GPU is waited for to know, but for a batch norm's.

        Args:
            mine: what pack() has given here.
            theirs: of the same length, on the same device.
        """
        buffers = self._in_order()
        sizes = [num_bytes(buffer) for _, buffer in buffers]
        written, others = [], []
        for (module, buffer), old, new in zip(buffers, mine.split(sizes), theirs.split(sizes)):
            value = new.view(buffer.dtype).view(buffer.shape)
            # No backward reads what a batch norm keeps for evaluations: it is no change in place.
            if isinstance(module, _NormBase) and module.training:
                written.append((buffer.data, value))
            else:
                others.append((buffer, value, old, new))
        if others:
            differ = torch.stack([_differ(old, new) for _, _, old, new in others]).tolist()
            written += [(buffer, value) for (buffer, value, _, _), differs in zip(others, differ) if differs]
        by_place: Dict[Any, List[Tuple[torch.Tensor, torch.Tensor]]] = {}
        for buffer, value in written:
            by_place.setdefault((buffer.dtype, buffer.device), []).append((buffer, value))
        with torch.no_grad():
            for pairs in by_place.values():
                copy_all(pairs)

    def broadcast(self, name: str) -> None:
        """Makes them those of the set's first rank, in one transfer through the host's memory; in none where they are
        large, and on no rank other ones than after the last transfer."""
        if not self.travel():
            return
        root = self._process_set.ranks[0]
        mine = self.pack(torch.device("cpu"))
        large = mine.numel() >= _LARGE
        if large and self._last is not None and not self._anybody_has_changed(mine, self._last, name):
            return
        theirs = mine if _job.rank() == root else mine.clone()
        broadcast_(theirs, root, name, self._process_set)
        if theirs is not mine:
            self.take(mine, theirs)
        if large:
            self._last = theirs

    def _anybody_has_changed(self, mine: torch.Tensor, last: torch.Tensor, name: str) -> bool:
        changed = last.numel() != mine.numel() or bool(_differ(last, mine))
        number = torch.tensor([changed], dtype=torch.uint8, device="cpu")
        return bool(allreduce_(number, name=name + ".changed", op=Max, process_set=self._process_set))


__all__ = ["Buffers"]
