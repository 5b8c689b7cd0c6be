"""Tensors as the library sees them: contiguous host memory, a dtype, a count."""

import functools
import inspect
import os
import sys
import warnings
import zlib
from typing import Any, Callable, List, Sequence, Set, Tuple

import torch

from .. import _lib

DTYPES = {
    torch.uint8: _lib.UINT8,
    torch.int8: _lib.INT8,
    torch.int16: _lib.INT16,
    torch.int32: _lib.INT32,
    torch.int64: _lib.INT64,
    torch.float16: _lib.FLOAT16,
    torch.bfloat16: _lib.BFLOAT16,
    torch.float32: _lib.FLOAT32,
    torch.float64: _lib.FLOAT64,
    torch.bool: _lib.BOOL,
}

NO_DATA = 'on the device "meta", where tensors have no data: give the model to_empty(device="cpu") and weights first'

_warned: Set[str] = set()


def _dynamo() -> Tuple[Any, Any]:
    """What tells whether torch's Dynamo traces what this thread calls, and what makes it leave a code object alone.
    None: this torch has no such."""
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    tracer, skip = getattr(frames, "get_eval_frame_callback", None), getattr(frames, "skip_code", None)
    if all(hasattr(frames, name) for name in ("set_code_exec_strategy", "_FrameExecStrategy", "_FrameAction")):
        alone = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)

        def skip(code: Any) -> None:  # in newer ones
            frames.set_code_exec_strategy(code, alone)

    return tracer, skip


_tracer, _skip_code = _dynamo()


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile calls the function as it is."""
    disable = getattr(torch, "_disable_dynamo", None)  # torch 2.1 and newer; loads Dynamo with the first call, not before
    if disable is None:
        return function
    apart = disable(function)
    if _tracer is None or _skip_code is None:
        return apart

    def call(*args: Any, **kwargs: Any) -> Any:
        # To switch Dynamo off and on takes as long as a small collective between processes.
        return (function if _tracer() is None else apart)(*args, **kwargs)

    _skip_code(call.__code__)
    return functools.wraps(function)(call)


def untraced_methods(kind: Any) -> Any:
    """torch.compile does not trace the methods of this class. torch's C++ code calls them, as DistributedDataParallel
    does within a compiled model, and Dynamo lets no code touch the attributes of a process group."""
    for name, member in list(vars(kind).items()):
        called = not name.startswith("_") or hasattr(kind.__base__, name)  # the others are called by these alone
        if inspect.isfunction(member) and called and name not in ("__init__", "__del__"):
            setattr(kind, name, untraced(member))
    return kind


_NOT_THE_SCRIPT = tuple(os.path.dirname(path) + os.sep for path in (os.path.dirname(__file__), torch.__file__))


def _level_of_script() -> int:
    """As warnings.warn() counts the frames of its caller's callers; where none is a script's, the nearest."""
    level, frame = 2, sys._getframe(2)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_NOT_THE_SCRIPT):
            return level
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    return 2


def warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, stacklevel=_level_of_script())


def warn_of_copies(device: torch.device) -> None:
    warn_once(
        f"psring copies tensors on {device} to the host's memory and back in each step and each collective, "
        "while the script waits"
    )


def digest(params: Sequence[torch.Tensor]) -> int:
    """Of the bits of floating-point tensors, at the speed of memory. Waits for a GPU."""
    words = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}
    with torch.no_grad():
        sums = [p.detach().contiguous().view(words[p.element_size()]).sum().to(params[0].device) for p in params]
        return zlib.crc32(repr(torch.stack(sums).tolist()).encode()) if sums else 0


def increment_version(tensor: torch.Tensor) -> None:
    """torch counts a change in place. The tensor's memory is not touched."""
    count = getattr(torch.autograd.graph, "increment_version", None)  # since torch 2.1
    if count is not None:
        count(tensor)
    else:
        tensor.detach().reshape(-1)[:0].zero_()


def _check_dense(tensor: torch.Tensor, what: str) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what} takes a tensor, not a {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{what} of a sparse tensor is not supported: use .to_dense()")
    if tensor.device.type == "meta":
        raise TypeError(f"{what}: the tensor is {NO_DATA}")


def check_bytes(tensor: torch.Tensor, what: str) -> None:
    """Raises unless the bytes of a tensor can be sent, and received in their place."""
    _check_dense(tensor, what)
    if tensor.numel() and any(stride == 0 and extent > 1 for stride, extent in zip(tensor.stride(), tensor.shape)):
        raise TypeError(f"{what}: the tensor is expanded, so several elements share memory: use .clone()")


def check_movable(tensor: torch.Tensor, what: str) -> None:
    """Raises unless a collective that only moves elements takes the tensor."""
    _check_dense(tensor, what)
    if tensor.is_complex() or tensor.is_quantized:
        check_dtype(tensor, what)


def check_dtype(tensor: torch.Tensor, what: str) -> int:
    """The library's number for the dtype of a dense tensor."""
    _check_dense(tensor, what)
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        remedy = ": use torch.view_as_real" if tensor.is_complex() else ""
        raise TypeError(f"{what} of {tensor.dtype} is not supported{remedy}")
    return dtype


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where the library can read it, else a copy."""
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        warn_of_copies(tensor.device)
        tensor = tensor.to("cpu")
    # resolve_conj and resolve_neg: views that only claim to be computed.
    return tensor.resolve_neg().contiguous()


def dense_strides(tensor: torch.Tensor) -> Tuple[int, ...]:
    """The strides that autograd gives a parameter's gradient: the tensor's own where it fills its
    memory without gaps, as in channels_last; else those of a contiguous tensor."""
    own = tuple(tensor.stride())
    if tuple(torch.empty_like(tensor, device="meta").stride()) == own:
        return own
    return tuple(torch.empty(tensor.shape, device="meta").stride())


def num_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def apart(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two contiguous tensors share no memory."""
    return a.data_ptr() + num_bytes(a) <= b.data_ptr() or b.data_ptr() + num_bytes(b) <= a.data_ptr()


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's elements in their order, flat; a copy where they do not lie so."""
    flat = tensor.resolve_conj().resolve_neg().reshape(-1)
    if flat.stride(0) != 1:  # of one element, which counts as contiguous
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8)


# Of torch 2.1 and newer.
_foreach_copy = getattr(torch, "_foreach_copy_", None)


def copy_all(pairs: Sequence[Tuple[torch.Tensor, torch.Tensor]]) -> None:
    """place.copy_(value) for each (place, value). On a GPU that is one launch for all whose
    value lies as its place does. The others are copied one by one: not every torch with
    _foreach_copy_ copies between dtypes, and one strided pair would make all of them slow.

    Args:
        pairs: the places have no gaps, one dtype and one device.
    """
    places: List[torch.Tensor] = []
    values: List[torch.Tensor] = []
    for place, value in pairs:
        alike = place.dtype == value.dtype and place.device == value.device and place.shape == value.shape
        lie_alike = place.stride() == value.stride()
        if alike and not lie_alike and place.is_contiguous() and value.is_contiguous():
            # Their strides differ only in dimensions of size 1, as channels_last has them.
            value, lie_alike = value.as_strided(place.shape, place.stride()), True
        lazily = place.is_conj() or place.is_neg()
        if _foreach_copy is None or not alike or lazily or not lie_alike:
            place.copy_(value)
            continue
        places.append(place)
        values.append(value)
    if places:
        assert _foreach_copy is not None
        _foreach_copy(places, values)


class _GpuMemory:
    def __init__(self, address: int, num_elements: int):
        self.__cuda_array_interface__ = {
            "shape": (num_elements,), "typestr": "<f4", "data": (address, False), "strides": None, "version": 3,
        }  # fmt: skip


def over_gpu_memory(
    address: int, num_elements: int, gpu: torch.device, used_by: Callable[[Any], None]
) -> torch.Tensor:
    """So many float32 there. used_by: is told of an object that lives as long as something lies over them."""
    memory = _GpuMemory(address, num_elements)
    try:
        tensor = torch.as_tensor(memory, device=gpu)
    except RuntimeError as error:
        if "numpy" not in str(error).lower():
            raise
        raise _lib.PsringError(
            "PyTorch needs NumPy to use psring's memory on a GPU: pip install numpy, or set PSRING_GPU=off"
        ) from error
    if tensor.data_ptr() != address:
        raise _lib.PsringError(
            f"this PyTorch copies psring's memory on {gpu} in place of using it: set PSRING_GPU=off, "
            "or use another PyTorch"
        )
    used_by(memory)
    return tensor


def describe(tensor: Any) -> str:
    return f"{str(tensor.dtype).replace('torch.', '')}{list(tensor.shape)}"


def describe_layout(tensor: torch.Tensor) -> str:
    """As describe(), and the strides of a gradient whose elements do not lie in logical order."""
    strides = dense_strides(tensor)
    if torch.empty_strided(tensor.shape, strides, device="meta").is_contiguous():
        return describe(tensor)
    # Any stride goes with a dimension of size 1.
    return f"{describe(tensor)} with strides {[s if n > 1 else 1 for n, s in zip(tensor.shape, strides)]}"
