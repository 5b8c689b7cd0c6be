"""Sparse gradients: everybody's rows, side by side."""

import torch

from .. import _lib
from ..process_sets import ProcessSet
from .collectives import allgather_async
from .gradient_exchange import Entry


# Rows are checked here, which torch 2.13 warns of otherwise; torch 1.13 does not know the argument.
_UNCHECKED = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}


def reduce_sparse(entry: Entry, name: str, process_set: ProcessSet, average: bool) -> None:
    """p.grad becomes the sum or mean of all ranks' sparse gradients.

    A rank without a gradient contributes no rows.
    """
    param, grad = entry.param, entry.param.grad
    dense_shape = param.shape[entry.sparse_dim :]
    if grad is None:
        indices = torch.zeros((0, entry.sparse_dim), dtype=torch.int64, device="cpu")
        values = torch.zeros((0, *dense_shape), dtype=param.dtype, device="cpu")
    elif grad.layout == torch.strided:
        raise RuntimeError(
            f"the gradient of {entry.name} is dense, and was sparse in the first backward(): "
            "pass sparse_as_dense=True to DistributedOptimizer"
        )
    else:
        grad = grad.coalesce()
        indices, values = grad.indices().t().contiguous(), grad.values()
    # A collective's name has at most 256 bytes.
    tag = entry.name if len(entry.name.encode()) <= 128 else f"sparse{entry.index}"
    rows = allgather_async(indices, f"{name}.{tag}.rows", process_set)
    parts = allgather_async(values, f"{name}.{tag}.values", process_set)
    total = parts.wait()
    if average:
        total = total / process_set.size()
    all_rows = rows.wait().to("cpu")  # rows of a gradient on a GPU come back there
    # torch does not look, and would write there.
    ends = torch.tensor(param.shape[: entry.sparse_dim], device="cpu")
    if len(all_rows) != len(total) or bool(((all_rows < 0) | (all_rows >= ends)).any()):
        raise _lib.PsringError(f"another rank sent a gradient of {entry.name} with rows outside of {list(param.shape)}")
    all_rows = all_rows.t().to(param.device)
    param.grad = torch.sparse_coo_tensor(all_rows, total.to(param.device), param.shape, **_UNCHECKED).coalesce()
