"""Horovod's elastic states: a job that is started again goes on from its last commit().

    state = ps.elastic.TorchState(model=model, optimizer=optimizer, epoch=0)

    @ps.elastic.run
    def train(state):
        while state.epoch < 10:
            ...
            state.epoch += 1
            state.commit()

    train(state)
"""

from collections import OrderedDict
from typing import IO, Any, Callable, Dict, Iterator, Optional, Sized, TypeVar

import torch

from .. import _elastic, _job
from ..collectives import broadcast_object
from .functions import broadcast_optimizer_state, broadcast_parameters, broadcast_structure

_Result = TypeVar("_Result")


class TorchState(_elastic.State):
    """Values that all ranks have alike and that outlive the job's processes, as attributes of these names.

    A value that has state_dict() and load_state_dict(), as models, optimizers, schedulers and samplers have, stays
    the object that it is and takes the state of the last commit(). Any other value, such as a number, is replaced;
    a tensor of a GPU comes back in the host's memory.

    Rank 0 keeps the last commit in the folder PSRING_STATE_DIR: that of psring run --state-dir, or a temporary one of
    psring run --max-restarts. Its file is a pickle, which can run code in whoever reads it: let nobody else
    write to the folder.
    """

    _with_state = "with state_dict()"

    def __init__(self, model: Optional[torch.nn.Module] = None, optimizer: Any = None, **values: Any):
        given = {"model": model, "optimizer": optimizer}
        super().__init__("pt", {**{name: value for name, value in given.items() if value is not None}, **values})

    def sync(self) -> None:
        """All ranks take rank 0's values. All ranks call it, before the first step."""
        others = {}
        for name in self._names:
            value = getattr(self, name)
            if isinstance(value, torch.nn.Module):
                broadcast_parameters(value.state_dict())
            elif isinstance(value, torch.optim.Optimizer):
                broadcast_optimizer_state(value)
            else:
                others[name] = value.state_dict() if self._has_state(value) else value
        self._take_others(others)

    def _has_state(self, value: Any) -> bool:
        return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")

    def _states(self) -> Dict[str, Any]:
        parts = [getattr(self, name) for name in self._names]
        for part in parts:
            if hasattr(part, "synchronize_parameters"):
                part.synchronize_parameters()
        # All ranks: an optimizer may ask the others for their parts.
        return {name: part.state_dict() for name, part in zip(self._names, parts) if self._has_state(part)}

    def _take(self, states: Dict[str, Any], values: Dict[str, Any], of_commit: bool) -> None:
        # Models before optimizers, of which a fused one takes the parameters as they are.
        tensors = [name for name in self._names if isinstance(getattr(self, name), torch.nn.Module)]
        tensors += [name for name in self._names if isinstance(getattr(self, name), torch.optim.Optimizer)]
        for name in tensors:
            state = states.pop(name, None)
            # Where torch keeps the versions of a model's modules.
            versions = getattr(state, "_metadata", None)
            state, versions = broadcast_structure((state, versions), root_rank=0, any_object=True)
            if versions is not None:
                state = OrderedDict(state)
                state._metadata = versions  # type: ignore[attr-defined]
            try:
                getattr(self, name).load_state_dict(state)
            except (RuntimeError, ValueError) as error:
                raise self._differs(name, error) from error
        self._take_others({**states, **values})

    def _take_others(self, values: Dict[str, Any]) -> None:
        for name, value in broadcast_object(values).items():
            if self._has_state(getattr(self, name)):
                getattr(self, name).load_state_dict(value)
            else:
                setattr(self, name, value)

    def _write(self, saved: Dict[str, Any], file: IO[bytes]) -> None:
        torch.save(saved, file)

    def _load(self, file: IO[bytes]) -> Dict[str, Any]:
        return torch.load(file, map_location="cpu", weights_only=False)  # type: ignore[no-any-return]


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """A decorator of func(state, ...): it goes on from the state's last commit, or else begins with rank 0's values.

    Another call in the same process leaves the state as it is. All ranks call it. A failure ends the process as ever; it
    is psring run --max-restarts=N that starts all again.
    """
    return _elastic.begins(func, TorchState)


class ElasticSampler(torch.utils.data.Sampler):  # type: ignore[type-arg]
    """Deals an epoch's samples to the workers, as DistributedSampler does, and after a restart those that are
    left, to any number of workers. Give it to a TorchState, call record_batch() after each batch and set_epoch()
    at the end of an epoch.

    Args:
        dataset: has a length.
        shuffle: whether an epoch's order is drawn, by `seed` and the epoch.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch, self.processed_num = 0, 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """That epoch, from its beginning."""
        self.load_state_dict({"epoch": epoch, "processed_num": 0})

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Every worker has trained on a batch of that many samples. `batch_idx` is Horovod's, and not needed."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> Dict[str, int]:
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        self.epoch, self.processed_num = state["epoch"], state["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Deals what is left of the epoch. Every worker gets as much; for that, samples may come twice at the end."""
        self.rank, self.num_replicas = _job.rank(), _job.size()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(len(order), generator=generator).tolist()
        left = order[self.processed_num :]
        self.num_samples = -(-len(left) // self.num_replicas)  # rounded up
        self.total_size = self.num_samples * self.num_replicas
        left += [left[i % len(left)] for i in range(self.total_size - len(left))]
        self.indices = left[self.rank :: self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples


__all__ = ["ElasticSampler", "run", "TorchState"]
