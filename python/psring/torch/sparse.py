"""Sparse gradients: everybody's rows, side by side."""

import torch

from .. import _lib
from ..process_sets import ProcessSet
from .collectives import Handle, allgather_async
from .entry import Entry


# Rows are checked here, which torch 2.13 warns of otherwise; torch 1.13 does not know the argument.
_UNCHECKED = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}


def start_sparse_allreduce(tensor: torch.Tensor, average: bool, what: str, name: str, process_set: ProcessSet) -> Handle:
    """Brings the sum or mean of all ranks' sparse tensors of one shape, with each row once.

    Args:
        what: the tensor is, for an error.
    """
    mine = tensor.coalesce()
    rows = allgather_async(mine.indices().t().contiguous(), f"{name}.rows", process_set)
    parts = allgather_async(mine.values(), f"{name}.values", process_set)

    def collect() -> torch.Tensor:
        total = parts.wait()
        if average:
            total = total / process_set.size()
        all_rows = rows.wait().to("cpu")  # rows of a tensor on a GPU come back there
        # torch does not look, and would write there.
        ends = torch.tensor(mine.shape[: mine.sparse_dim()], device="cpu")
        if len(all_rows) != len(total) or bool(((all_rows < 0) | (all_rows >= ends)).any()):
            raise _lib.PsringError(f"another rank sent {what} with rows outside of {list(mine.shape)}")
        all_rows = all_rows.t().to(mine.device)
        return torch.sparse_coo_tensor(
            all_rows, total.to(mine.device), mine.shape, device=mine.device, **_UNCHECKED
        ).coalesce()

    return Handle([*rows._operations, *parts._operations], collect)


def reduce_sparse(entry: Entry, name: str, process_set: ProcessSet, average: bool) -> None:
    """p.grad becomes the sum or mean of all ranks' sparse gradients.

    A rank without a gradient contributes no rows.
    """
    param, grad = entry.param, entry.param.grad
    if grad is None:
        rows = torch.zeros((entry.sparse_dim, 0), dtype=torch.int64, device="cpu")
        values = torch.zeros((0, *param.shape[entry.sparse_dim :]), dtype=param.dtype, device="cpu")
        grad = torch.sparse_coo_tensor(rows, values, param.shape, **_UNCHECKED).to(param.device)
    elif grad.layout == torch.strided:
        raise RuntimeError(
            f"the gradient of {entry.name} is dense, and was sparse in the first backward(): "
            "pass sparse_as_dense=True to DistributedOptimizer"
        )
    # A collective's name has at most 256 bytes.
    tag = entry.name if len(entry.name.encode()) <= 128 else f"sparse{entry.index}"
    reduced = start_sparse_allreduce(grad, average, f"a gradient of {entry.name}", f"{name}.{tag}", process_set)
    param.grad = reduced.wait()
