"""What torch.distributed passes to a process group: operations, and whether the tensors of a call fit together."""

from typing import Any, Sequence

import torch
import torch.distributed as dist

from ..collectives import Average, Max, Min, Product, ReduceOp, Sum
from ._tensors import describe

_OPS = [
    (dist.ReduceOp.SUM, Sum),
    (dist.ReduceOp.AVG, Average),
    (dist.ReduceOp.MIN, Min),
    (dist.ReduceOp.MAX, Max),
    (dist.ReduceOp.PRODUCT, Product),
]


def operation_of(opts: Any) -> ReduceOp:
    """Of torch's options of a call."""
    wanted = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
    for op, ours in _OPS:
        if wanted == op:
            return ours
    # A ReduceOp of a call's options prints as an address.
    name = next((name for name, op in dist.ReduceOp.RedOpType.__members__.items() if wanted == op), str(wanted))
    raise NotImplementedError(f"ReduceOp.{name} is not supported by the psring backend: use SUM, AVG, MIN, MAX or PRODUCT")


def check(what: str, role: str, tensor: torch.Tensor, numel: int, dtype: torch.dtype) -> None:
    """Raises, as Gloo does, where a tensor is not what the others of the call make of it: the library works on
    memory, of which it sees no end."""
    if tensor.numel() != numel or tensor.dtype != dtype:
        raise ValueError(
            f"{what}: {role} is {describe(tensor)}, which does not fit the other tensors of the call: pass one with "
            f"{numel} elements of {str(dtype).replace('torch.', '')}"
        )


def check_count(what: str, role: str, items: Sequence[Any], count: int) -> None:
    if len(items) != count:
        raise ValueError(f"{what}: {role} has {len(items)} items: pass {count}")


def check_came(what: str, came: Sequence[int], expected: Sequence[int]) -> None:
    """`came`: what each rank of the group has sent."""
    for rank, (theirs, mine) in enumerate(zip(came, expected)):
        if theirs != mine:
            raise ValueError(
                f"{what}: rank {rank} of the group sends {theirs} elements, and there is room for {mine}: pass tensors and "
                "splits that fit on all ranks"
            )


def row_of(tensor: torch.Tensor) -> int:
    """The elements of one."""
    return tensor.numel() // tensor.shape[0] if tensor.dim() and tensor.shape[0] else 1


def as_real(tensor: torch.Tensor, op: ReduceOp = Sum) -> torch.Tensor:
    """A view of a complex tensor that the library takes. Only sums and averages are those of its parts."""
    if not tensor.is_complex():
        return tensor
    if op not in (Sum, Average):
        raise ValueError(f"ReduceOp.{op.name.upper()} of {tensor.dtype} is not supported: use SUM or AVG")
    return torch.view_as_real(tensor)


def check_order(ranks: Sequence[int]) -> None:
    """Of a group that is to be made."""
    if list(ranks) != sorted(ranks):
        raise NotImplementedError(
            f"new_group({list(ranks)}, sort_ranks=False) is not supported by the psring backend, whose groups have their ranks "
            "in ascending order: leave sort_ranks away"
        )


def summed(op: ReduceOp, tensor: torch.Tensor) -> ReduceOp:
    """The operation that reduces `tensor`: whole numbers have no average, and are summed for _divide_sum."""
    if op is not Average or tensor.is_floating_point() or tensor.is_complex():
        return op
    if tensor.dtype == torch.bool:
        raise ValueError("ReduceOp.AVG of torch.bool: convert the tensor to floats, or use ReduceOp.MAX")
    return Sum


__all__ = ["as_real", "check", "check_came", "check_count", "check_order", "operation_of", "row_of", "summed"]
