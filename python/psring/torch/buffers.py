"""A model's buffers, such as the running mean of a batch norm: rank 0's for all ranks."""

from typing import Dict, List, Tuple

import torch

from .. import _job
from ..process_sets import ProcessSet
from ._tensors import NO_DATA, check_bytes, describe
from .collectives import Handle, broadcast_async_


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """By their bytes, because torch does not compare every dtype."""
    return torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


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
        """Makes them those of the set's first rank, with one transfer for each dtype."""
        if not self.travel():
            return
        alike: Dict[Tuple[torch.dtype, torch.device], List[torch.Tensor]] = {}
        for name_of, module, key in self._places:
            buffer = module._buffers.get(key)
            if buffer is None:
                raise RuntimeError(
                    f"the buffer {name_of} is gone: all ranks keep the buffers that the model had when "
                    "DistributedOptimizer was made, or pass broadcast_buffers=False"
                )
            alike.setdefault((buffer.dtype, buffer.device), []).append(buffer.detach())
        root = self._process_set.ranks[0]
        transfers: List[Tuple[List[torch.Tensor], torch.Tensor, Handle]] = []
        with torch.no_grad():
            for number, ((dtype, _), buffers) in enumerate(alike.items()):
                flat = torch.cat([buffer.reshape(-1) for buffer in buffers]).to("cpu")
                # As bytes, because the library does not know every dtype that a buffer may have.
                handle = broadcast_async_(flat.view(torch.uint8), root, f"{name}.{number}.{dtype}", self._process_set)
                transfers.append((buffers, flat, handle))
            for buffers, flat, handle in transfers:
                handle.wait()
                if _job.rank() != root:
                    for buffer, part in zip(buffers, flat.split([buffer.numel() for buffer in buffers])):
                        part = part.view(buffer.shape).to(buffer.device)
                        if not _same(buffer, part):  # else a graph that reads it may be kept
                            buffer.copy_(part)


__all__ = ["Buffers"]
