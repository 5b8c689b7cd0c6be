"""Making all ranks start alike: parameters, optimizer state, objects."""

import io
import pickle
import sys
from typing import Any, Dict, Iterable, List, Union

import torch

from .. import _job
from ..collectives import agree, auto_name, broadcast_bytes, broadcast_object
from ..process_sets import ProcessSet, global_process_set
from ._tensors import bytes_of, check_bytes, dense_strides, describe, num_bytes
from .collectives import broadcast_

# A transfer ends with the tensor that fills so much, so that a copy of a large model is never whole.
_CHUNK_BYTES = 128 << 20


def _broadcast_tensors(tensors: List[torch.Tensor], root_rank: int, name: str, process_set: ProcessSet) -> None:
    """Makes all tensors the root's, in few transfers (_CHUNK_BYTES)."""
    chunk: List[torch.Tensor] = []
    size, number = 0, 0
    for position, tensor in enumerate(tensors):
        chunk.append(tensor)
        size += num_bytes(tensor)
        if size < _CHUNK_BYTES and position + 1 < len(tensors):
            continue
        flat = torch.empty(size, dtype=torch.uint8, device="cpu")
        _copy_chunk(chunk, flat, into_flat=True)
        broadcast_(flat, root_rank, f"{name}.{number}", process_set)
        if _job.rank() != root_rank:
            _copy_chunk(chunk, flat, into_flat=False)
        chunk, size, number = [], 0, number + 1


def _copy_chunk(tensors: List[torch.Tensor], flat: torch.Tensor, into_flat: bool) -> None:
    begin = 0
    with torch.no_grad():
        for tensor in tensors:
            end = begin + num_bytes(tensor)
            if into_flat:
                flat[begin:end].copy_(bytes_of(tensor.detach().to("cpu")))
            else:
                # A copy, because a view needs aligned memory.
                part = flat[begin:end].clone().view(tensor.dtype).reshape(tensor.shape)
                tensor.detach().copy_(part)
            begin = end


def broadcast_parameters(
    params: Union[Dict[str, Any], Iterable[Any]], root_rank: int = 0,
    process_set: ProcessSet = global_process_set,
) -> None:  # fmt: skip
    """Makes everybody's tensors those of rank `root_rank`, in one transfer or, where they are large, a few.

    Args:
        params: a state_dict, named_parameters() or parameters(). What is not a
            tensor in it stays as it is. Names, shapes and dtypes must agree on
            all ranks; the error names the first that does not.
    """
    if isinstance(params, dict):
        named = sorted(params.items())
    elif isinstance(params, torch.Tensor) or not hasattr(params, "__iter__"):
        raise ValueError(
            f"broadcast_parameters of a {type(params).__name__}: it takes model.state_dict(), "
            "model.named_parameters() or model.parameters()"
        )
    else:
        named = [p if isinstance(p, tuple) else (str(i), p) for i, p in enumerate(params)]
    tensors = []
    for name, tensor in named:
        if isinstance(tensor, torch.Tensor):
            check_bytes(tensor, f"broadcast of {name}")
            tensors.append((name, tensor))
    if named and not tensors:
        raise ValueError(
            "broadcast_parameters found no tensor in what it was given: it takes model.state_dict(), not a dict of such; "
            "for an optimizer call broadcast_optimizer_state(optimizer)"
        )
    name = auto_name("broadcast_parameters", process_set)
    listed = [f"tensor {i}, {n} {describe(t)}" for i, (n, t) in enumerate(tensors)]
    agree(listed, name + ".names", process_set)
    _broadcast_tensors([t for _, t in tensors if t.numel()], root_rank, name, process_set)


class _Place:
    """Where a tensor was in a structure that is sent without its tensors."""

    def __init__(self, tensor: torch.Tensor):
        self.shape, self.strides, self.dtype = list(tensor.shape), list(dense_strides(tensor)), tensor.dtype

    def empty(self) -> torch.Tensor:
        # as_strided, unlike empty_strided, stays within the memory of the shape.
        return torch.empty(self.shape, dtype=self.dtype, device="cpu").as_strided(self.shape, self.strides)


class _NumpyNumber:
    """A number of numpy's, as its bytes."""

    def __init__(self, value: Any):
        self.dtype, self.data = value.dtype.str, value.tobytes()

    def value(self) -> Any:
        import numpy

        return numpy.frombuffer(self.data, numpy.dtype(self.dtype))[0]


class _PlainUnpickler(pickle.Unpickler):
    """Makes plain values alone, with their exact types, so it runs no code of another rank."""

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name in ("_Place", "_NumpyNumber"):
            return globals()[name]
        if (module, name) == ("builtins", "complex"):
            return complex
        found = getattr(torch, name, None) if module == "torch" else None
        if isinstance(found, torch.dtype) or found is torch.device or found is torch.Size:
            return found
        raise pickle.UnpicklingError(
            f"an optimizer's state with a {module}.{name}: broadcast_optimizer_state sends tensors, numbers, texts, "
            "and lists, tuples and dicts of them. Send others by broadcast_object, if you trust all ranks"
        )


def _broadcast_plain(value: Any, root_rank: int, name: str, process_set: ProcessSet) -> Any:
    """As broadcast_object, of what _PlainUnpickler makes. The root's error comes before it sends."""
    data = None
    if _job.rank() == root_rank:
        data = pickle.dumps(value, protocol=4)
        _PlainUnpickler(io.BytesIO(data)).load()
    return _PlainUnpickler(io.BytesIO(broadcast_bytes(data, root_rank, name, process_set))).load()


def _take_out(value: Any, tensors: List[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Place(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biufc":
        return _NumpyNumber(value)
    if isinstance(value, dict):
        return {key: _take_out(item, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_take_out(item, tensors) for item in value)
    return value


def _put_in(value: Any, tensors: List[torch.Tensor]) -> Any:
    if isinstance(value, _Place):
        tensors.append(value.empty())
        return tensors[-1]
    if isinstance(value, _NumpyNumber):
        return value.value()
    if isinstance(value, dict):
        return {key: _put_in(item, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_put_in(item, tensors) for item in value)
    return value


def broadcast_structure(
    value: Any, root_rank: int, process_set: ProcessSet = global_process_set, any_object: bool = False
) -> Any:
    """The root's nested dicts, lists and tuples, tensors and all. `any_object`: other objects, too, as
    broadcast_object does, where all ranks trust the root."""
    name = auto_name("broadcast_structure", process_set)
    tensors: List[torch.Tensor] = []
    mine = _job.rank() == root_rank
    skeleton = _take_out(value, tensors) if mine else None
    send = broadcast_object if any_object else _broadcast_plain
    skeleton = send(skeleton, root_rank, name, process_set)
    if not mine:
        tensors = []
        value = _put_in(skeleton, tensors)
    _broadcast_tensors([t for t in tensors if t.numel()], root_rank, name + ".tensors", process_set)
    return value


def check_optimizer(optimizer: Any, call: str) -> None:
    """Raises where what `call` is given is no optimizer of torch's."""
    if isinstance(optimizer, type) or not hasattr(optimizer, "param_groups"):
        what = f"the class {optimizer.__name__}" if isinstance(optimizer, type) else type(optimizer).__name__
        raise TypeError(f"{call} takes an optimizer such as torch.optim.SGD(...), not {what}")


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int = 0, model: Any = None,
    process_set: ProcessSet = global_process_set,
) -> None:  # fmt: skip
    """Gives every rank the optimizer state and param_groups of rank `root_rank`.

    Takes no step of the optimizer, and works whether or not the other ranks have
    any state yet. `model` is Horovod's, and not needed.
    """
    check_optimizer(optimizer, "broadcast_optimizer_state")
    part = getattr(optimizer, "_psring", None)
    # Of a fused optimizer, all ranks fetch and set the state together.
    together = part is not None and part.settings.fused
    mine = _job.rank() == root_rank
    state: Any = optimizer.state_dict() if mine or together else None
    state = broadcast_structure(state, root_rank, process_set)
    if together or not mine:
        optimizer.load_state_dict(state)
    elif part is not None:
        part.is_behind = False


__all__ = ["broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]
