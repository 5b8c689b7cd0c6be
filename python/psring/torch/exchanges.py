"""alltoall and reducescatter on tensors, under Horovod's names."""

from typing import Any, List, Optional, Tuple, Union, overload

import torch

from .. import collectives as memory
from .._rows import cuts, shared_out
from ..collectives import Average, ReduceOp, Sum, call_name
from ..process_sets import ProcessSet, global_process_set
from ._tensors import check_dtype, num_bytes, on_host
from .collectives import Handle, _Allgather, _op, _received, _room, _rows
from .compression import compressor


def _start_alltoall(tensor: torch.Tensor, splits: Any, name: Optional[str], process_set: ProcessSet) -> Handle:
    source, row, tag = _rows(tensor, "alltoall")
    counts = cuts("alltoall", source.shape[0], splits, process_set.size())
    room = _room(source, source.shape[0])
    operation = memory.start_alltoall(
        call_name(name, "alltoall", process_set), source.data_ptr(), [count * row for count in counts],
        tag, process_set, (source, room), (room.data_ptr(), num_bytes(room)),
    )  # fmt: skip

    def collect() -> Tuple[torch.Tensor, List[int]]:
        out, rows = _received(operation, room, row, process_set.size())
        return out.to(tensor.device), rows

    return Handle([operation], collect)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):  # type: ignore[no-untyped-def]
        out, rows = _start_alltoall(tensor, splits, name, process_set).wait()
        ctx.rows, ctx.name, ctx.process_set, ctx.shape = rows, name + ".grad", process_set, tensor.shape
        counts = torch.tensor(rows, dtype=torch.int32, device="cpu")
        ctx.mark_non_differentiable(counts)
        return out, counts

    @staticmethod
    def backward(ctx, gradient, _):  # type: ignore[no-untyped-def]
        out, _ = _Alltoall.apply(gradient, ctx.rows, ctx.name, ctx.process_set)
        return out.reshape(ctx.shape), None, None, None


def alltoall_async(
    tensor: torch.Tensor, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Starts alltoall()."""
    inner = _start_alltoall(tensor, splits, name, process_set)

    def collect() -> Any:
        out, rows = inner.wait()
        return out if splits is None else (out, torch.tensor(rows, dtype=torch.int32, device="cpu"))

    return Handle(inner._operations, collect)


@overload
def alltoall(
    tensor: torch.Tensor, splits: None = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor: ...


@overload
def alltoall(
    tensor: torch.Tensor, splits: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Tuple[torch.Tensor, torch.Tensor]: ...


def alltoall(
    tensor: torch.Tensor, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """Sends splits[i] rows to the i-th rank, and returns what came, by rank.

    Without splits each rank gets as many. With splits, the second result is the
    number of rows that came from each rank.
    """
    name = call_name(name, "alltoall", process_set)
    out, counts = _Alltoall.apply(tensor, splits, name, process_set)
    return out if splits is None else (out, counts)


# ---- reducescatter -----------------------------------------------------------


def _start_reducescatter(
    tensor: torch.Tensor, op: ReduceOp, name: Optional[str], prescale: float, postscale: float, process_set: ProcessSet
) -> Handle:
    dtype = check_dtype(tensor, "reducescatter")
    if tensor.dim() == 0:
        raise ValueError("reducescatter cuts dimension 0: a 0-dimensional tensor has none")
    source = on_host(tensor)
    ranks, me = process_set.size(), process_set.rank()
    rows = shared_out(source.shape[0], ranks)
    row = source[0].numel() if source.shape[0] else 0
    target = torch.empty((rows[me], *source.shape[1:]), dtype=source.dtype, device="cpu")
    operation = memory.start_reducescatter(
        call_name(name, "reducescatter", process_set), source.data_ptr(), target.data_ptr(),
        [count * row for count in rows], dtype, op, prescale, postscale, process_set, (source, target),
    )  # fmt: skip
    return Handle([operation], lambda: target.to(tensor.device))


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, op, name, prescale, postscale, process_set):  # type: ignore[no-untyped-def]
        ctx.op, ctx.name, ctx.process_set = op, name + ".grad", process_set
        out = _start_reducescatter(tensor, op, name, prescale, postscale, process_set).wait()
        ctx.scale = prescale * postscale
        return out

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        if ctx.op not in (Average, Sum):
            raise NotImplementedError(f"reducescatter with op={ctx.op.name} has no gradient")
        scale = ctx.scale * (ctx.process_set.size() if ctx.op is Sum else 1)
        return _Allgather.apply(gradient * scale, ctx.name, ctx.process_set), None, None, None, None, None


def reducescatter_async(
    tensor: torch.Tensor, name: Optional[str] = None, op: Optional[ReduceOp] = None,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Handle:  # fmt: skip
    """Starts reducescatter()."""
    return _start_reducescatter(
        tensor, _op(op, None, tensor), name, prescale_factor, postscale_factor, process_set
    )


def reducescatter(
    tensor: torch.Tensor, name: Optional[str] = None, compression: Any = None, op: Optional[ReduceOp] = None,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> torch.Tensor:  # fmt: skip
    """This rank's rows of the reduction, by default the mean.

    Rows are shared out evenly; the first ranks get one more where that leaves some.
    """
    op = _op(op, None, tensor)
    name = call_name(name, "reducescatter", process_set)
    compression = compressor(compression)
    small, ctx = compression.compress(tensor)
    out = _Reducescatter.apply(small, op, name, prescale_factor, postscale_factor, process_set)
    return compression.decompress(out, ctx)
