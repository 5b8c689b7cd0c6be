"""Collectives on several tensors at once, under Horovod's names.

All of a group start before one is waited for. Small tensors of an allreduce travel together, so
their elements may be added in another order than in an allreduce of each tensor alone.
"""

import itertools
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple, Type

import torch

from .._packs import WORTH_PACKING, Comparison, Kind, Packs
from ..collectives import Average, ReduceOp, Sum, call_name
from ..process_sets import ProcessSet, global_process_set
from ._tensors import check_dtype, increment_version, on_host
from .collectives import Handle, _op, _start_allgather, _start_allreduce
from .compression import Compression, Compressor, compressor
from .exchanges import _start_reducescatter


def _members(tensors: Iterable[Any]) -> List[torch.Tensor]:
    if isinstance(tensors, torch.Tensor):
        raise TypeError("a group is a list of tensors, and this is one tensor")
    members = list(tensors)
    for member in members:
        if not isinstance(member, torch.Tensor):
            raise TypeError(f"a group is a list of tensors, and one of this is a {type(member).__name__}")
    return members


def _all_started(starting: Iterable[Handle]) -> List[Handle]:
    """Where one of them cannot start, the others are given up."""
    started: List[Handle] = []
    try:
        started.extend(starting)
    except BaseException:
        for handle in started:
            handle.release()
        raise
    return started


def _together(starting: Iterable[Handle]) -> Handle:
    handles = _all_started(starting)
    operations = [operation for handle in handles for operation in handle._operations]
    return Handle(operations, lambda: [handle.wait() for handle in handles])


# From the gradients of a group's results to those of its tensors.
Backward = Callable[[List[torch.Tensor]], List[torch.Tensor]]


class _Group(torch.autograd.Function):
    """All gradients of a group are reduced together, zeros where a result has none: which results a
    loss depends on may differ between ranks."""

    @staticmethod
    def forward(ctx, call, *tensors):  # type: ignore[no-untyped-def]
        results, ctx.of_gradients = call(tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[r for r, tensor in zip(results, tensors) if not tensor.requires_grad])
        ctx.results = [(result.shape, result.dtype, result.device) for result in results]
        return tuple(results)

    @staticmethod
    def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
        filled = []
        for gradient, (shape, dtype, device) in zip(gradients, ctx.results):
            dtype = dtype if dtype.is_floating_point else torch.float32  # of integers
            filled.append(torch.zeros(shape, dtype=dtype, device=device) if gradient is None else gradient)
        return (None, *ctx.of_gradients(filled))


def _differentiably(
    call: Callable[[Sequence[torch.Tensor]], Tuple[List[torch.Tensor], Backward]], tensors: List[torch.Tensor]
) -> List[torch.Tensor]:
    """The first of what `call` returns, whose gradients are the second."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return list(_Group.apply(call, *tensors))
    return call(tensors)[0]


# ---- allreduce ---------------------------------------------------------------


class _TensorOps:
    """What Packs works with."""

    concatenate = staticmethod(torch.cat)
    reshape = staticmethod(torch.reshape)


def _kind(tensor: torch.Tensor) -> Kind:
    return str(tensor.dtype).replace("torch.", ""), tuple(tensor.shape)


class _Compared(Handle):
    """Whether all ranks have packed the same."""

    def __init__(self, packs: Packs, name: str, process_set: ProcessSet):
        self._comparison = comparison = Comparison(packs)
        self._sums = sums = torch.tensor(comparison.numbers, dtype=torch.float64, device="cpu")
        started = _start_allreduce(sums, True, Sum, f"{name}.packs", 1.0, 1.0, process_set)
        super().__init__(started._operations, lambda: comparison.check(sums.tolist(), name, process_set))

    def differs(self) -> bool:
        """False also where it is not known yet."""
        return self.poll() and self._comparison.differs(self._sums.tolist())


class _PackedGroup(Handle):
    """Allreduces of packs. Whether all ranks have packed the same is known first: otherwise some of
    the packs may have no counterpart to wait for."""

    def __init__(self, compared: _Compared, reduced: Sequence[Handle], collect: Callable[[], List[torch.Tensor]]):
        super().__init__([operation for handle in (compared, *reduced) for operation in handle._operations], collect)
        self._compared = compared

    def poll(self, milliseconds: int = 0) -> bool:
        return super().poll(milliseconds) or self._compared.differs()

    def _await_all(self) -> None:
        self._compared.wait()
        super()._await_all()


def _start_group(
    tensors: Sequence[torch.Tensor], in_place: bool, average: Optional[bool], name: Optional[str], op: Optional[ReduceOp],
    prescale: float, postscale: float, process_set: ProcessSet,
) -> Handle:  # fmt: skip
    name = call_name(name, "grouped_allreduce", process_set)
    tensors = _members(tensors)
    ops = [_op(op, average, tensor) for tensor in tensors]  # all the same
    for tensor in tensors:
        check_dtype(tensor, "allreduce")

    def start(number: int, tensor: torch.Tensor, in_place: bool) -> Handle:
        return _start_allreduce(tensor, in_place, ops[0], f"{name}.{number}", prescale, postscale, process_set)

    if len(tensors) < WORTH_PACKING:
        return _together(start(i, tensor, in_place) for i, tensor in enumerate(tensors))

    packs = Packs([_kind(tensor) for tensor in tensors])
    # Tensors of several devices meet on the host.
    one_device = len({tensor.device for tensor in tensors}) == 1
    sources = [tensor.detach() if one_device else on_host(tensor) for tensor in tensors]
    compared = _Compared(packs, name, process_set)
    starting = (
        start(number, tensors[pack[0]], in_place) if len(pack) == 1 else start(number, packed, True)
        for number, (pack, packed) in enumerate(zip(packs.members, packs.pack(sources, _TensorOps)))
    )
    _, *reduced = _all_started(itertools.chain([compared], starting))

    def collect() -> List[torch.Tensor]:
        results = packs.unpack([handle.wait() for handle in reduced], _TensorOps)
        with torch.no_grad():
            for index in (index for pack in packs.members if len(pack) > 1 for index in pack):
                part, device = results[index], tensors[index].device
                # Not the part itself: it would keep all of the pack, and torch.save write all of it.
                results[index] = tensors[index] if in_place else torch.empty_like(part, device=device)
                results[index].copy_(part)
        return results

    return _PackedGroup(compared, reduced, collect)


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[ReduceOp] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:  # fmt: skip
    """allreduce_async of several tensors; the result is a list."""
    return _start_group(tensors, False, average, name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[ReduceOp] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:  # fmt: skip
    """allreduce_async_ of several tensors."""
    tensors = _members(tensors)
    handle = _start_group(tensors, True, average, name, op, prescale_factor, postscale_factor, process_set)
    for tensor in tensors:
        increment_version(tensor)
    return handle


def grouped_allreduce(
    tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none, op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[torch.Tensor]:  # fmt: skip
    """allreduce of several tensors."""
    called, compression = call_name(name, "grouped_allreduce", process_set), compressor(compression)

    def reduce(values: Sequence[torch.Tensor]) -> Tuple[List[torch.Tensor], Backward]:
        reduced = _start_group(
            values, False, average, called, op, prescale_factor, postscale_factor, process_set
        ).wait()  # fmt: skip

        def backward(gradients: List[torch.Tensor]) -> List[torch.Tensor]:
            if op is not None and op not in (Average, Sum):
                raise NotImplementedError(f"grouped_allreduce with op={op.name} has no gradient")
            return grouped_allreduce(
                gradients, average, called + ".grad", Compression.none, op, prescale_factor, postscale_factor, process_set
            )  # fmt: skip

        return reduced, backward

    small = [compression.compress(tensor) for tensor in _members(tensors)]
    reduced = _differentiably(reduce, [tensor for tensor, _ in small])
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, small)]


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[ReduceOp] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[torch.Tensor]:  # fmt: skip
    """allreduce_ of several tensors, none of them twice."""
    return grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set).wait()


# ---- allgather, reducescatter ------------------------------------------------


def _start_gathers(tensors: Sequence[torch.Tensor], name: str, process_set: ProcessSet) -> Handle:
    return _together(_start_allgather(tensor, f"{name}.{i}", process_set) for i, tensor in enumerate(_members(tensors)))


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """allgather_async of several tensors; the result is a list."""
    started = _start_gathers(tensors, call_name(name, "grouped_allgather", process_set), process_set)
    return Handle(started._operations, lambda: [out for out, _ in started.wait()])


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[torch.Tensor]:
    """allgather of several tensors."""
    called = call_name(name, "grouped_allgather", process_set)

    def gather(values: Sequence[torch.Tensor]) -> Tuple[List[torch.Tensor], Backward]:
        gathered = _start_gathers(values, called, process_set).wait()
        shapes, me = [value.shape for value in values], process_set.rank()

        def backward(gradients: List[torch.Tensor]) -> List[torch.Tensor]:
            means = grouped_allreduce(gradients, op=Average, name=called + ".grad", process_set=process_set)
            return [
                mean.narrow(0, sum(rows[:me]), rows[me]).reshape(shape)
                for mean, (_, rows), shape in zip(means, gathered, shapes)
            ]

        return [out for out, _ in gathered], backward

    return _differentiably(gather, _members(tensors))


def _start_scatters(
    tensors: Sequence[torch.Tensor], name: str, op: Optional[ReduceOp], process_set: ProcessSet,
    prescale: float, postscale: float,
) -> Handle:  # fmt: skip
    tensors = _members(tensors)
    ops = [_op(op, None, tensor) for tensor in tensors]
    return _together(
        _start_reducescatter(tensor, op, f"{name}.{i}", prescale, postscale, process_set)
        for i, (tensor, op) in enumerate(zip(tensors, ops))
    )


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, op: Optional[ReduceOp] = None,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Handle:  # fmt: skip
    """reducescatter_async of several tensors; the result is a list."""
    name = call_name(name, "grouped_reducescatter", process_set)
    return _start_scatters(tensors, name, op, process_set, prescale_factor, postscale_factor)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, compression: Any = None,
    op: Optional[ReduceOp] = None, process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> List[torch.Tensor]:  # fmt: skip
    """reducescatter of several tensors."""
    compression = compressor(compression)
    called = call_name(name, "grouped_reducescatter", process_set)

    def scatter(values: Sequence[torch.Tensor]) -> Tuple[List[torch.Tensor], Backward]:
        scattered = _start_scatters(values, called, op, process_set, prescale_factor, postscale_factor).wait()

        def backward(gradients: List[torch.Tensor]) -> List[torch.Tensor]:
            if op is not None and op not in (Average, Sum):
                raise NotImplementedError(f"grouped_reducescatter with op={op.name} has no gradient")
            scale = prescale_factor * postscale_factor * (process_set.size() if op is Sum else 1)
            return grouped_allgather([gradient * scale for gradient in gradients], called + ".grad", process_set)

        return scattered, backward

    small = [compression.compress(tensor) for tensor in _members(tensors)]
    scattered = _differentiably(scatter, [tensor for tensor, _ in small])
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(scattered, small)]
