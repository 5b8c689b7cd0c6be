"""Gradients in a GPU's memory: whether the library exchanges them there, and how what
it does is ordered with the script's streams."""

from typing import Any, Callable, Dict, Optional, Sequence

import torch

from .. import _job, _lib
from ._tensors import warn_of_copies


def choose(entries: Sequence[Any], wish: Optional[str]) -> Optional[torch.device]:
    """The GPU in whose memory the library exchanges these parameters' gradients. None:
    it does so in the host's, and copies are warned of.

    Args:
        entries: with `name` and `param`.
        wish: init()'s gpu.
    """
    away = [entry for entry in entries if entry.param.device.type != "cpu"]
    if not away:
        return None
    first = away[0]
    device = first.param.device
    of_cuda = device.type == "cuda" and torch.version.cuda is not None
    if not of_cuda or wish == "off" or not _lib.cuda_built():
        if wish in ("nccl", "host") and of_cuda:
            raise ValueError(
                f'gpu="{wish}" (or PSRING_GPU={wish}), but this libpsring.so was built without CUDA: build it with '
                "nvcc and nccl.h, or leave gpu away"
            )
        for entry in away:
            warn_of_copies(entry.param.device)
        return None
    for entry in entries:
        if entry.param.device != device:
            raise ValueError(
                f"{first.name} is on {device}, and {entry.name} on {entry.param.device}: the gradients of one "
                "optimizer are exchanged in the memory of one GPU. Make an optimizer for the parameters of each "
                'device, or let PyTorch copy them to the host, by init(gpu="off") or PSRING_GPU=off'
            )
    return device


def place_of(device: Optional[torch.device], wish: Optional[str]) -> str:
    """What the other ranks are told of it: "host", or how a GPU's gradients shall be summed."""
    return "host" if device is None else "gpu:" + (wish or "auto")


def model_options(device: torch.device, places: Sequence[str]) -> Dict[str, Any]:
    """Of psring_open_model; `places`: of every rank, by rank. Errors: NCCL is asked for,
    and not all ranks can take part."""
    if len(set(places)) == 1:
        return {"device": str(device), "ring_backend": places[0].partition(":")[2]}
    if "gpu:nccl" in places and _job.mode() == "ring":
        other = next(rank for rank, place in enumerate(places) if place != "gpu:nccl")
        where = "the host" if places[other] == "host" else f"a GPU, with gpu={places[other][4:]!r}"
        raise ValueError(
            f'gpu="nccl" on rank {places.index("gpu:nccl")}, but rank {other} exchanges its gradients on {where}: '
            "all ranks need a GPU, a libpsring.so with CUDA and the same gpu"
        )
    # Ranks on GPUs and ranks without meet in a ring of the hosts.
    return {"device": str(device), "ring_backend": "host"}


# Of each GPU, the most that the library has held there for models, outside of torch's allocator.
_most_model_bytes: Dict[torch.device, int] = {}


def note_model_bytes(device: torch.device, num_bytes: int) -> None:
    """The library's models there take so many now."""
    _most_model_bytes[device] = max(_most_model_bytes.get(device, 0), num_bytes)


def memory_figures() -> Dict[str, Any]:
    """For the last line of the metrics: of the GPU that exchanges gradients, else of the current one; as the built-in
    trainer's. {} where torch uses none."""
    if not torch.cuda.is_initialized():
        return {}
    device = next(iter(_most_model_bytes), None) or torch.device("cuda", torch.cuda.current_device())
    try:
        stats = torch.cuda.memory_stats(device)
    except RuntimeError:  # of an allocator that is not torch's own
        return {}
    figures = {"model": _most_model_bytes.get(device, 0)}
    for kind in ("allocated", "reserved"):
        figures[kind] = stats.get(f"{kind}_bytes.all.current", 0)
        figures["peak_" + kind] = stats.get(f"{kind}_bytes.all.peak", 0)
    return {"gpu_memory_bytes": figures}


_job.after_leaving(_most_model_bytes.clear)


class StreamOrder:
    """Keeps what is done with the library's memory in order, whatever stream each thread
    works in: autograd's hooks run in the streams of their forward pass.

    Args:
        device: of the memory.
        tell: Model.set_stream.
    """

    def __init__(self, device: torch.device, tell: Callable[[int], None]):
        self._device, self._tell = device, tell
        # The number of the current stream, without an object for it: hooks ask for each gradient.
        self._number = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self._last = torch.cuda.current_stream(device)
        tell(self._last.cuda_stream)

    def come_behind(self) -> None:
        """What this thread's stream gets from now on comes behind what was done so far."""
        if self._number is not None and self._number(self._device.index) == self._last.cuda_stream:
            return
        stream = torch.cuda.current_stream(self._device)
        if stream.cuda_stream == self._last.cuda_stream:
            return
        stream.wait_stream(self._last)
        self._last = stream
        self._tell(stream.cuda_stream)
