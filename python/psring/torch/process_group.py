"""psring as a backend of torch.distributed, for scripts with DistributedDataParallel.

    import psring.torch
    torch.distributed.init_process_group("psring")

DDP's collectives then run over psring's ring, on tensors of the host. What DDP
does not need (send, recv, gather, scatter, reduce) is refused by name.
"""

import os
import queue
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed as dist

from .. import _job, _lifecycle
from .. import collectives as memory
from .._channels import TorchrunStore
from ..collectives import Average, Max, Min, Product, ReduceOp, Sum
from ..process_sets import ProcessSet, global_process_set
from ._tensors import check_dtype
from .collectives import Handle, _start_allgather, _start_allreduce, _start_broadcast
from .exchanges import _start_alltoall

_OPS = [
    (dist.ReduceOp.SUM, Sum),
    (dist.ReduceOp.AVG, Average),
    (dist.ReduceOp.MIN, Min),
    (dist.ReduceOp.MAX, Max),
    (dist.ReduceOp.PRODUCT, Product),
]
_Work = dist.Work if hasattr(dist, "Work") else dist._Work


class _PsringWork(_Work):  # type: ignore[misc,valid-type]
    """A collective under way. Its future is set by the group's waiting thread."""

    def __init__(self, handles: List[Handle], finish: Callable[[], Any]):
        super().__init__()
        self._handles, self._finish = handles, finish
        self._future: Any = torch.futures.Future()
        self._lock = threading.Lock()
        self._done = False
        self._error: Optional[BaseException] = None

    def complete(self) -> None:
        with self._lock:
            if self._done:
                return
            try:
                for handle in self._handles:
                    handle.wait()
                with torch.no_grad():
                    result = self._finish()
            except BaseException as error:  # also what Ctrl-C raises: the future carries it
                self._error = error
                self._future.set_exception(error)
            else:
                self._future.set_result(result)
            self._done = True

    def wait(self, timeout: Any = None) -> bool:
        self.complete()
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self._done or all(handle.poll() for handle in self._handles)

    def is_success(self) -> bool:
        return self._done and self._error is None

    def exception(self) -> Any:
        return self._error

    def get_future(self) -> Any:
        return self._future

    def result(self) -> Any:
        return self._future.value()


def _complete_all(works: "queue.SimpleQueue[Any]") -> None:
    """DDP waits for futures without calling wait(): somebody has to set them."""
    while True:
        work = works.get()
        if work is None:
            return
        work.complete()
        del work  # it holds the group


class PsringProcessGroup(dist.ProcessGroup):
    """A process group over the ranks of a ProcessSet."""

    def __init__(self, rank: int, size: int, process_set: ProcessSet, name: str):
        super().__init__(rank, size)
        self._set, self._name = process_set, name
        self._count = 0
        self._works: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        threading.Thread(target=_complete_all, args=(self._works,), name="psring futures", daemon=True).start()
        weakref.finalize(self, self._works.put, None).atexit = False

    @property
    def group_name(self) -> str:
        return self._name

    def _next(self, kind: str) -> str:
        self._count = (self._count + 1) % 4096  # the library remembers every name
        return f"group{self._name}.{kind}.{self._count}"

    def _work(self, handles: List[Handle], finish: Callable[[], Any]) -> _PsringWork:
        work = _PsringWork(handles, finish)
        self._works.put(work)
        return work

    def _op(self, opts: Any) -> ReduceOp:
        wanted = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
        for op, ours in _OPS:
            if wanted == op:
                return ours
        raise NotImplementedError(f"{wanted} is not supported by the psring backend: use SUM, AVG, MIN, MAX or PRODUCT")

    def _root(self, rank: int) -> int:
        return self._set.ranks[rank]

    # ---- Collectives ---------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        op, name = self._op(opts), self._next("allreduce")
        handles = [
            _start_allreduce(t, True, op, f"{name}.{i}", 1.0, 1.0, self._set) for i, t in enumerate(tensors)
        ]
        return self._work(handles, lambda: tensors)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        root, name = self._root(opts.rootRank if opts is not None else 0), self._next("broadcast")
        handles = [_start_broadcast(t, True, root, f"{name}.{i}", self._set) for i, t in enumerate(tensors)]
        return self._work(handles, lambda: tensors)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        name = self._next("allgather")
        handles = [_start_allgather(t.reshape(-1), f"{name}.{i}", self._set) for i, t in enumerate(inputs)]

        def finish() -> Any:
            for handle, targets in zip(handles, outputs):
                gathered, _ = handle.wait()
                for target, part in zip(targets, gathered.chunk(self._set.size())):
                    target.copy_(part.view_as(target))
            return outputs

        return self._work(handles, finish)

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        handle = _start_allgather(input.reshape(-1), self._next("allgather_base"), self._set)

        def finish() -> Any:
            output.copy_(handle.wait()[0].view_as(output))
            return [output]

        return self._work([handle], finish)

    def _reduce_scatter_flat(self, output: torch.Tensor, flat: torch.Tensor, opts: Any) -> Any:
        dtype = check_dtype(flat, "reduce_scatter")
        target = output if output.is_contiguous() else torch.empty_like(output, memory_format=torch.contiguous_format)
        operation = memory.start_reducescatter(
            self._next("reduce_scatter"), flat.data_ptr(), target.data_ptr(), [output.numel()] * self._set.size(),
            dtype, self._op(opts), process_set=self._set, keep=(flat, target),
        )  # fmt: skip

        def finish() -> Any:
            if target is not output:
                output.copy_(target)
            return [output]

        return self._work([Handle([operation], lambda: None)], finish)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        flat = torch.cat([t.reshape(-1) for t in inputs[0]])
        return self._reduce_scatter_flat(outputs[0], flat, opts)

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        return self._reduce_scatter_flat(output, input.detach().contiguous().reshape(-1), opts)

    def barrier(self, opts: Any = None) -> Any:
        one = torch.zeros(1, dtype=torch.uint8, device="cpu")
        handle = _start_allreduce(one, True, Max, self._next("barrier"), 1.0, 1.0, self._set)
        return self._work([handle], lambda: [])

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        flat = torch.cat([t.reshape(-1) for t in inputs])
        handle = _start_alltoall(flat, [t.numel() for t in inputs], self._next("alltoall"), self._set)

        def finish() -> Any:
            received, counts = handle.wait()
            for target, part in zip(outputs, received.split(counts)):
                target.copy_(part.view_as(target))
            return outputs

        return self._work([handle], finish)

    def alltoall_base(self, output: Any, input: Any, output_splits: Any, input_splits: Any, opts: Any = None) -> Any:
        handle = _start_alltoall(input, list(input_splits) or None, self._next("alltoall_base"), self._set)

        def finish() -> Any:
            output.copy_(handle.wait()[0].view_as(output))
            return [output]

        return self._work([handle], finish)

    # torch 2.13's names of the same.
    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base

    # ---- What it is, and what it is not --------------------------------------

    def size(self) -> int:
        return self._set.size()

    def rank(self) -> int:
        return self._set.rank()

    def getBackendName(self) -> str:
        return "psring"

    def name(self) -> str:
        return "psring"

    @property
    def supports_splitting(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"PsringProcessGroup({self._set})"


def _refusal(kind: str) -> Callable[..., Any]:
    def refuse(self: Any, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f'{kind} of torch.distributed is not supported by the psring backend: make a group with backend="gloo" for it'
        )

    return refuse


for _kind in ("send", "recv", "recv_anysource", "gather", "scatter", "reduce"):
    setattr(PsringProcessGroup, _kind, _refusal(_kind))


def _place(rank: int, size: int) -> Dict[str, int]:
    """Of init(): nothing where torchrun says the same, whose store then carries the coordinator's address."""
    same = (os.environ.get("RANK"), os.environ.get("WORLD_SIZE")) == (str(rank), str(size))
    return {} if same and TorchrunStore.is_there() else {"rank": rank, "size": size}


def _create(options: Any, _: Any = None) -> PsringProcessGroup:
    """Of init_process_group and new_group."""
    ranks = list(options.global_ranks_in_group)
    if not _job.is_initialized():
        _lifecycle.init(mode="ring", **_place(options.group_rank, options.group_size))
    if _job.mode() != "ring":
        raise ValueError(f'the psring backend needs mode="ring"; this job is in mode "{_job.mode()}"')
    whole = not ranks or len(ranks) == _job.size()
    if whole and options.group_size != _job.size():
        raise ValueError(f"torch.distributed has {options.group_size} ranks, psring's job {_job.size()}")
    process_set = global_process_set if whole else ProcessSet(ranks)
    return PsringProcessGroup(options.group_rank, options.group_size, process_set, str(options.group_id))


__all__ = ["PsringProcessGroup"]
