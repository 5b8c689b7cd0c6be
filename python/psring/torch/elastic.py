"""Horovod's elastic states: a job that is started again goes on from its last commit().

    state = ps.elastic.TorchState(model=model, optimizer=optimizer, epoch=0)

    @ps.elastic.run
    def train(state):
        while state.epoch < 10:
            ...
            state.epoch += 1
            state.commit()

    train(state)

Horovod's workers keep a commit in memory, and those that are left go on from it. psring starts all workers again
(psring run --max-restarts=N), as many as before, and rank 0 reads its commit from a file.
"""

import functools
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sized, TypeVar

import torch

from .. import _job
from ..collectives import broadcast_json, broadcast_object
from .functions import broadcast_optimizer_state, broadcast_parameters, broadcast_structure

_Result = TypeVar("_Result")

_FOLDER = "PSRING_STATE_DIR"
_FORMAT = "psring elastic state 1"
_ANEW = "Without that file the job begins anew"
_made = 0  # states of this process; each has a file of its own


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it has been removed
        return ""


# A relative PSRING_STATE_DIR is meant from here, also where a script goes to a folder that is new in each start.
_began_in = _working_folder()


def _has_state(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _told(kinds: Dict[str, bool]) -> str:
    """Names, and whether their values have state_dict()."""
    return ", ".join(name + " (with state_dict())" * kinds[name] for name in sorted(kinds))


def _check_folder(folder: str) -> None:
    """Rather than at the first commit(), when the steps before are lost."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise OSError(f"{_FOLDER}: cannot make {folder}: {error}. Give psring run another --state-dir") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{_FOLDER}: cannot write to {folder}. Give psring run another --state-dir")


def _replace(path: str, saved: Dict[str, Any]) -> None:
    """Errors: OSError, what torch makes of one, and what pickle raises of objects that it does not take."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = path + ".new"
    try:
        with open(new, "wb") as file:
            torch.save(saved, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        if os.path.isfile(new):
            os.remove(new)
        raise


class TorchState:
    """Values that all ranks have alike and that outlive the job's processes, as attributes of these names.

    A value that has state_dict() and load_state_dict(), as models, optimizers, schedulers and samplers have, stays
    the object that it is and takes the state of the last commit(). Any other value, such as a number, is replaced;
    a tensor of a GPU comes back in the host's memory.

    Rank 0 keeps the last commit in the folder PSRING_STATE_DIR: that of psring run --state-dir, or a temporary one of
    psring run --max-restarts. Its file is a pickle, which can run code in whoever reads it: let nobody else
    write to the folder.
    """

    def __init__(self, model: Optional[torch.nn.Module] = None, optimizer: Any = None, **values: Any):
        global _made
        self._file = f"state-{_made}.pt" if _made else "state.pt"
        _made += 1
        self._callbacks: List[Callable[[], None]] = []
        self._warned = False
        self._is_kept: Optional[bool] = None  # whether rank 0 has a folder
        self._has_begun = False  # by a function of run()
        self._may_replace = False  # rank 0: the file has nothing that this process is still to go on from
        given = {"model": model, "optimizer": optimizer}
        values = {**{name: value for name, value in given.items() if value is not None}, **values}
        for name, value in values.items():
            if name.startswith("_") or hasattr(type(self), name):
                raise ValueError(f"TorchState({name}=...): {name} has a meaning of its own here. Choose another name")
            setattr(self, name, value)
        self._names = list(values)

    if TYPE_CHECKING:  # the values

        def __getattr__(self, name: str) -> Any: ...

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """They are called where the job goes on from a commit of another number of workers, after the values
        are that commit's: there a script sets what depends on the number, such as the learning rate."""
        self._callbacks.extend(callbacks)

    def commit(self) -> None:
        """The values are from now on what the job goes on from. All ranks call it, between steps. A commit of an
        earlier start stays until a function of run(), or restore(), has gone on from it.

        Rank 0 blocks until its file is on the disk. Errors: OSError of rank 0 where it cannot be written; the commit
        before stays.
        """
        self.save()
        self.check_host_updates()

    def save(self) -> None:
        """As commit()."""
        path = self._path()
        if self._is_kept is None:
            self._is_kept = broadcast_json(path is not None)
        if not self._is_kept:
            self._say_why_not()
            return
        parts = [getattr(self, name) for name in self._names]
        for part in parts:
            if hasattr(part, "synchronize_parameters"):
                part.synchronize_parameters()
        # All ranks: an optimizer may ask the others for their parts.
        states = {name: part.state_dict() for name, part in zip(self._names, parts) if _has_state(part)}
        if _job.rank() != 0 or path is None:
            return
        if not self._may_replace and os.path.exists(path):
            self._warn(f"leaves {path} as it is, as neither a function of elastic.run nor restore() has gone on from that yet")
            return
        self._may_replace = True
        values = {name: getattr(self, name) for name in self._names if name not in states}
        try:
            _replace(path, {"format": _FORMAT, "size": _job.size(), "states": states, "values": values})
        except (OSError, RuntimeError) as error:  # the latter of torch's writer, of a full disk, say
            raise OSError(f"commit() cannot write {path}: {error}") from error
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(f"commit() of {', '.join(self._names)}: a value cannot be pickled: {error}") from error

    def restore(self) -> None:
        """Back to the last commit. All ranks call it, between steps. Errors: there is none that fits."""
        if not self._go_on():
            raise RuntimeError(f"restore(): nothing has been committed{'' if self._path() else f', as {_FOLDER} is not set'}")

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
                others[name] = value.state_dict() if _has_state(value) else value
        self._take_others(others)

    def check_host_updates(self) -> None:
        """Horovod's, where hosts come and go while a job runs. psring's workers stay the same."""

    def on_reset(self) -> None:
        for callback in self._callbacks:
            callback()

    def _take_others(self, values: Dict[str, Any]) -> None:
        for name, value in broadcast_object(values).items():
            if _has_state(getattr(self, name)):
                getattr(self, name).load_state_dict(value)
            else:
                setattr(self, name, value)

    def _path(self) -> Optional[str]:
        folder = os.environ.get(_FOLDER)
        return os.path.join(_began_in, folder, self._file) if folder else None

    def _warn(self, what: str) -> None:
        if not self._warned:
            print(f"psring: commit() {what}", file=sys.stderr, flush=True)
        self._warned = True

    def _say_why_not(self) -> None:
        why = f"nobody would start this job again: give psring run --max-restarts=N, or set {_FOLDER} to a folder"
        if _FOLDER in os.environ:
            why = f"{_FOLDER} is set to nothing"
        if _job.rank() == 0:
            self._warn(f"keeps nothing, as {why}")

    def _go_on(self) -> bool:
        """From the last commit, on all ranks; False: there is none."""
        saved = self._read() if _job.rank() == 0 else None
        self._may_replace = True
        size = broadcast_json(saved["size"] if saved else 0)
        if size == 0:
            return False
        states = saved["states"] if saved else {}
        # Models before optimizers, of which a fused one takes the parameters as they are.
        tensors = [name for name in self._names if isinstance(getattr(self, name), torch.nn.Module)]
        tensors += [name for name in self._names if isinstance(getattr(self, name), torch.optim.Optimizer)]
        for name in tensors:
            state = broadcast_structure(states.pop(name, None), root_rank=0, any_object=True)
            try:
                getattr(self, name).load_state_dict(state)
            except (RuntimeError, ValueError) as error:
                raise RuntimeError(f"{name} is not as it was in the last commit, {self._file}: {error}. {_ANEW}") from error
        self._take_others({**states, **saved["values"]} if saved else {})
        if size != _job.size():
            self.on_reset()
        return True

    def _read(self) -> Optional[Dict[str, Any]]:
        path = self._path()
        if path is None:
            return None
        _check_folder(os.path.dirname(path))
        if not os.path.exists(path):
            return None
        try:
            saved = torch.load(path, map_location="cpu", weights_only=False)
            if saved["format"] != _FORMAT:
                raise ValueError(f"its format is {saved['format']!r}, not {_FORMAT!r}")
        except Exception as error:  # whatever a pickle raises
            raise RuntimeError(
                f"{path} is no commit that can be read ({type(error).__name__}: {error}). {_ANEW}"
            ) from error
        committed = {**dict.fromkeys(saved["states"], True), **dict.fromkeys(saved["values"], False)}
        mine = {name: _has_state(getattr(self, name)) for name in self._names}
        if committed != mine:
            raise RuntimeError(
                f"{path} has been committed by a TorchState of {_told(committed)}, and this one is of {_told(mine)}. {_ANEW}"
            )
        return saved  # type: ignore[no-any-return]


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """A decorator of func(state, ...): it goes on from the state's last commit, or else begins with rank 0's values.

    Another call in the same process leaves the state as it is. All ranks call it. A failure ends the process as ever; it
    is psring run --max-restarts=N that starts all again.
    """

    @functools.wraps(func)
    def begin(state: TorchState, *args: Any, **kwargs: Any) -> _Result:
        if not isinstance(state, TorchState):
            raise TypeError(f"{func.__name__}() takes a TorchState first, not {type(state).__name__}")
        # In a second call, what this process has trained since its last commit is newer than that.
        if not state._has_begun and not state._go_on():
            state.sync()
        state._has_begun = True
        return func(state, *args, **kwargs)

    return begin


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
