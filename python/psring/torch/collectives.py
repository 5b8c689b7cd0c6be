"""Collectives on tensors, under Horovod's names.

Tensors may be 0-dimensional, not contiguous, or on a GPU (then they are copied through the host). Reductions take the
dtypes of DTYPES; what only moves elements takes others as well, such as uint16 and float8_e4m3fn. Forms that end in _ work in place; those
with _async return a handle, which keeps the tensors alive, for synchronize().
The others are differentiable.
"""

from typing import Any, Callable, List, Optional, Sequence, Tuple, Type

import torch

from .. import _job, _lib
from .. import collectives as memory
from .._rows import tag
from ..collectives import Average, ReduceOp, Sum, call_name
from ..process_sets import ProcessSet, global_process_set
from ._tensors import check_dtype, check_movable, describe, increment_version, num_bytes, on_host
from .compression import Compression, Compressor, compressor


class Handle:
    """Collectives that run; synchronize() returns what they bring."""

    def __init__(self, operations: Sequence[_lib.Operation], collect: Callable[[], Any]):
        self._operations = list(operations)
        self._collect: Optional[Callable[[], Any]] = collect
        self._result: Any = None
        self._error: Optional[_lib.PsringError] = None

    def set_order(self, order: str) -> None:
        for operation in self._operations:
            operation.set_order(order)

    def poll(self, milliseconds: int = 0) -> bool:
        """Whether wait() would return (or fail) at once, or within so long for each operation."""
        return all([operation.poll(milliseconds) for operation in self._operations])

    def wait(self) -> Any:
        if self._error is not None:
            raise self._error
        if self._collect is not None:
            try:
                self._await_all()
                self._result = self._collect()
            except _lib.PsringError as error:
                self._error, self._collect = error, None  # the results' memory goes with it
                self.release()
                raise
            self._collect = None
            self.release()
        return self._result

    def _await_all(self) -> None:
        for operation in self._operations:
            operation.wait()

    def release(self) -> None:
        """The library lets go of the memory, first of all of what still runs, which it gives up on all ranks."""
        for operation in self._operations:
            operation.release()


def _check_handle(handle: Any) -> None:
    if not isinstance(handle, Handle):
        raise TypeError(f"this takes the handle that an _async call has returned, not a {type(handle).__name__}")


def poll(handle: Handle) -> bool:
    """Whether synchronize() would return at once."""
    _check_handle(handle)
    return handle.poll()


def synchronize(handle: Handle) -> Any:
    """Waits for a collective and returns its result, as often as it is called."""
    _check_handle(handle)
    return handle.wait()


def _op(op: Optional[ReduceOp], average: Optional[bool], tensor: torch.Tensor) -> ReduceOp:
    """The reduction from `op` and Horovod's old `average`."""
    if average is not None:
        if op is not None:
            raise ValueError("average= and op= are two names of one thing: give op alone")
        op = Average if average else Sum
    if op is None:
        op = Average
    memory.op_code(op)
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"this takes a tensor, not {type(tensor).__name__}; ps.sum and ps.mean take numbers")
    if op is Average and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(
            f"op=Average of {tensor.dtype} has no exact result: "
            "use op=psring.torch.Sum, or convert the tensor to floats"
        )
    return op



# ---- allreduce ---------------------------------------------------------------


def _start_allreduce(
    tensor: torch.Tensor, in_place: bool, op: ReduceOp, name: Optional[str],
    prescale: float, postscale: float, process_set: ProcessSet,
) -> Handle:  # fmt: skip
    dtype = check_dtype(tensor, "allreduce")
    source = on_host(tensor)
    same = source.data_ptr() == tensor.data_ptr()
    target = source if in_place or not same else torch.empty_like(source)
    operation = memory.start_allreduce(
        call_name(name, "allreduce", process_set), source.data_ptr(), target.data_ptr(),
        source.numel(), dtype, op, prescale, postscale, process_set, (source, target),
    )  # fmt: skip

    def collect() -> torch.Tensor:
        if in_place:
            if not same:
                with torch.no_grad():
                    tensor.copy_(target)
            return tensor
        return target.to(tensor.device)

    return Handle([operation], collect)


def allreduce_async(
    tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[ReduceOp] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:  # fmt: skip
    """Starts postscale * reduction(prescale * tensor) over all ranks of the set."""
    op = _op(op, average, tensor)
    return _start_allreduce(tensor, False, op, name, prescale_factor, postscale_factor, process_set)


def allreduce_async_(
    tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[ReduceOp] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:  # fmt: skip
    """allreduce_async in place: the tensor is the operation's until synchronize()."""
    op = _op(op, average, tensor)
    handle = _start_allreduce(tensor, True, op, name, prescale_factor, postscale_factor, process_set)
    increment_version(tensor)  # else a backward() that saved it would take the new values for the old
    return handle


# The gradients are collectives with gradients of their own, as a gradient penalty needs
# (create_graph=True).


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, op, name, prescale, postscale, process_set):  # type: ignore[no-untyped-def]
        ctx.arguments = (op, name + ".grad", prescale, postscale, process_set)
        return _start_allreduce(tensor, False, op, name, prescale, postscale, process_set).wait()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        op = ctx.arguments[0]
        if op not in (Average, Sum):
            raise NotImplementedError(f"allreduce with op={op.name} has no gradient")
        return (_Allreduce.apply(gradient, *ctx.arguments), None, None, None, None, None)


def allreduce(
    tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none, op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:  # fmt: skip
    """The reduction of a tensor over all ranks, by default its mean.

    The same bits on all ranks: each element's operands are added in one order everywhere, 16-bit
    floats in float32. The gradient is reduced in the same way.
    """
    op = _op(op, average, tensor)
    name = call_name(name, "allreduce", process_set)
    compression = compressor(compression)
    small, ctx = compression.compress(tensor)
    reduced = _Allreduce.apply(small, op, name, prescale_factor, postscale_factor, process_set)
    return compression.decompress(reduced, ctx)


def allreduce_(
    tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[ReduceOp] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:  # fmt: skip
    """allreduce in place; not differentiable."""
    return allreduce_async_(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set
    ).wait()


# ---- allgather ---------------------------------------------------------------


def _rows(tensor: torch.Tensor, what: str) -> Tuple[torch.Tensor, int, str]:
    """A tensor with a first dimension, the bytes of one row, and the tag."""
    check_movable(tensor, what)
    source = on_host(tensor)
    source = source.reshape(1) if source.dim() == 0 else source
    row = source.element_size()
    for extent in source.shape[1:]:
        row *= extent
    if row == 0:
        raise ValueError(f"{what} of {describe(tensor)}: rows without elements cannot be counted")
    return source, row, tag(str(source.dtype).replace("torch.", ""), source.shape)


def _room(source: torch.Tensor, rows: int) -> torch.Tensor:
    """For what comes, if all ranks bring as much, as most do. Where there is no memory for that, less may come."""
    try:
        return _rows_like(source, rows)
    except RuntimeError:
        return _rows_like(source, 0)


def _rows_like(source: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.empty((rows, *source.shape[1:]), dtype=source.dtype, device="cpu")


def _received(operation: _lib.Operation, room: torch.Tensor, row: int, ranks: int) -> Tuple[torch.Tensor, List[int]]:
    sizes = operation.sizes(ranks)
    for rank, size in enumerate(sizes):
        if size % row:
            raise _lib.PsringError(f"rank {rank} of the set sent {size} bytes, no whole number of rows of {row} bytes")
    rows = [size // row for size in sizes]
    if sum(sizes) == num_bytes(room):
        return room, rows
    out = _rows_like(room, sum(rows))
    operation.result(out.data_ptr(), sum(sizes))
    return out, rows


def _start_allgather(tensor: torch.Tensor, name: Optional[str], process_set: ProcessSet) -> Handle:
    source, row, text = _rows(tensor, "allgather")
    room = _room(source, process_set.size() * source.shape[0])
    operation = memory.start_allgather(
        call_name(name, "allgather", process_set), source.data_ptr(), num_bytes(source), text, process_set, (source, room),
        (room.data_ptr(), num_bytes(room)),
    )  # fmt: skip

    def collect() -> Tuple[torch.Tensor, List[int]]:
        out, rows = _received(operation, room, row, process_set.size())
        return out.to(tensor.device), rows

    return Handle([operation], collect)


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Starts allgather()."""
    inner = _start_allgather(tensor, name, process_set)
    return Handle(inner._operations, lambda: inner.wait()[0])


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):  # type: ignore[no-untyped-def]
        out, rows = _start_allgather(tensor, name, process_set).wait()
        ctx.name, ctx.process_set, ctx.shape = name + ".grad", process_set, tensor.shape
        me = process_set.rank()
        ctx.begin, ctx.rows = sum(rows[:me]), rows[me]
        return out

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        mean = _Allreduce.apply(gradient, Average, ctx.name, 1.0, 1.0, ctx.process_set)
        return mean.narrow(0, ctx.begin, ctx.rows).reshape(ctx.shape), None, None


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Everybody's tensors, one after the other along dimension 0.

    Their numbers of rows may differ; all else must agree. A 0-dimensional tensor
    is one row. The gradient is the mean of all ranks' (as Horovod's).
    """
    return _Allgather.apply(tensor, call_name(name, "allgather", process_set), process_set)


# ---- broadcast ---------------------------------------------------------------


def _start_broadcast(
    tensor: torch.Tensor, in_place: bool, root_rank: int, name: Optional[str], process_set: ProcessSet
) -> Handle:
    check_movable(tensor, "broadcast")
    data = on_host(tensor)
    same = data.data_ptr() == tensor.data_ptr()
    if same and not in_place:
        data = data.clone()
    operation = memory.start_broadcast(
        call_name(name, "broadcast", process_set), data.data_ptr(), num_bytes(data), root_rank,
        describe(tensor), process_set, data,
    )  # fmt: skip

    def collect() -> torch.Tensor:
        if not in_place:
            return data.to(tensor.device)
        if not same:
            with torch.no_grad():
                tensor.copy_(data)
        return tensor

    return Handle([operation], collect)


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Starts broadcast()."""
    return _start_broadcast(tensor, False, root_rank, name, process_set)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Starts broadcast_(): the tensor is the operation's until synchronize()."""
    handle = _start_broadcast(tensor, True, root_rank, name, process_set)
    increment_version(tensor)
    return handle


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):  # type: ignore[no-untyped-def]
        ctx.root_rank, ctx.name, ctx.process_set = root_rank, name + ".grad", process_set
        return _start_broadcast(tensor, False, root_rank, name, process_set).wait()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        mean = _Allreduce.apply(gradient, Average, ctx.name, 1.0, 1.0, ctx.process_set)
        if _job.rank() != ctx.root_rank:
            # Still in the graph: the gradient's own gradient needs all ranks.
            mean = mean.masked_fill(mean.new_ones((), dtype=torch.bool), 0)
        return mean, None, None, None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The tensor of rank `root_rank` (of the job). Shapes and dtypes must agree.

    The gradient, at the root, is the mean of all ranks' (as Horovod's).
    """
    return _Broadcast.apply(tensor, root_rank, call_name(name, "broadcast", process_set), process_set)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """broadcast in place; not differentiable."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()
