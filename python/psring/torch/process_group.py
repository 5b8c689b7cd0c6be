"""psring as a backend of torch.distributed, for scripts with DistributedDataParallel.

    import psring.torch
    torch.distributed.init_process_group("psring")

DDP's collectives then run over psring's ring, on tensors of the host. The group's
timeout, torch's 30 minutes or the one that is given, becomes the job's step_timeout_s,
unless init() came first.
"""

import os
import queue
import threading
import weakref
from typing import Any, Callable, Dict, List, Sequence

import torch
import torch.distributed as dist

from .. import _channels, _job, _lifecycle
from .. import collectives as memory
from .._channels import TorchrunStore
from .._rows import cuts
from ..collectives import Average, Max, ReduceOp, Sum, auto_name
from ..process_sets import ProcessSet, global_process_set
from . import _alone
from ._tensors import apart, check_dtype, check_movable, num_bytes, on_host, untraced_methods
from .collectives import Handle, _start_allgather, _start_allreduce, _start_broadcast
from .exchanges import _start_alltoall
from .group_arguments import as_real, check, check_came, check_count, check_order, operation_of, row_of, summed
from .group_rendezvous import step_timeout_s
from .into_tensor import start_exchange_into, start_gather_into
from .sparse import start_sparse_allreduce
from .work import PsringWork, complete_all


@untraced_methods
class PsringProcessGroup(dist.ProcessGroup):
    """A process group over the ranks of a ProcessSet."""

    def __init__(self, rank: int, size: int, process_set: ProcessSet, name: str):
        super().__init__(rank, size)
        self._set, self._name = process_set, name
        # Two, because the sender of an early receive may wait for a collective. (The future of a transfer is set after
        # those of earlier ones.)
        self._works, self._transfers = self._completed("psring futures"), self._completed("psring transfers")

    def _completed(self, thread: str) -> "queue.SimpleQueue[Any]":
        """A queue of Completions, each of which is run in its turn."""
        works: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        threading.Thread(target=complete_all, args=(works,), name=thread, daemon=True).start()
        weakref.finalize(self, works.put, None).atexit = False
        return works

    @property
    def group_name(self) -> str:
        return self._name

    def _next(self, kind: str) -> str:
        return auto_name(f"group{self._name}.{kind}", self._set)

    def _work(self, handles: List[Handle], finish: Callable[[], Any]) -> PsringWork:
        """Of a collective."""
        for handle in handles:
            handle.set_order("group" + self._name)  # DDP's backward() waits for its future: no thread of psring's sees that
        return self._completed_by(self._works, handles, finish)

    def _completed_by(self, works: Any, handles: List[Handle], finish: Callable[[], Any]) -> PsringWork:
        _alone.note_group_is_used()
        return PsringWork(handles, finish, works, self)

    def _root(self, rank: int) -> int:
        return self._set.ranks[rank]

    def _divide_sum(self, op: ReduceOp, tensor: torch.Tensor) -> None:
        """After summed(): an average of whole numbers is cut off towards zero, as NCCL's is."""
        if op is not summed(op, tensor):
            tensor.div_(self.size(), rounding_mode="trunc")

    def _allreduce(self, kind: str, tensors: List[torch.Tensor], opts: Any, result: Callable[[], Any]) -> Any:
        """In place; what `result` returns, once all are reduced, is the work's."""
        op = operation_of(opts)
        parts, name = [as_real(tensor, op) for tensor in tensors], self._next(kind)
        handles = [
            _start_allreduce(t, True, summed(op, t), f"{name}.{i}", 1.0, 1.0, self._set) for i, t in enumerate(parts)
        ]

        def finish() -> Any:
            for part in parts:
                self._divide_sum(op, part)
            return result()

        return self._work(handles, finish)

    def _sparse_allreduce(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        op, name = operation_of(opts), self._next("sparse_allreduce")
        if op not in (Sum, Average) or not all(tensor.is_sparse for tensor in tensors):
            raise ValueError("all_reduce of sparse tensors: all of them must be sparse, with ReduceOp.SUM or AVG")
        handles = [
            start_sparse_allreduce(t, op is Average, "a tensor", f"{name}.{i}", self._set) for i, t in enumerate(tensors)
        ]

        def finish() -> Any:
            for handle, tensor in zip(handles, tensors):
                tensor.copy_(handle.wait())
            return tensors

        return self._work(handles, finish)

    # ---- Collectives ---------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if any(tensor.is_sparse for tensor in tensors):  # such as DDP's gradients of Embedding(sparse=True)
            return self._sparse_allreduce(tensors, opts)
        return self._allreduce("allreduce", tensors, opts, lambda: tensors)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        root, name = self._root(opts.rootRank if opts is not None else 0), self._next("broadcast")
        parts = [as_real(tensor) for tensor in tensors]
        handles = [_start_broadcast(t, True, root, f"{name}.{i}", self._set) for i, t in enumerate(parts)]
        return self._work(handles, lambda: tensors)

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        """An allreduce, of which the root alone takes the result."""
        copies = [tensor.detach().clone() for tensor in tensors]

        def take() -> Any:
            if self.rank() == opts.rootRank:
                for tensor, copy in zip(tensors, copies):
                    tensor.copy_(copy)
            return tensors

        return self._allreduce("reduce", copies, opts, take)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """An allgather, of which the root alone takes the result."""
        inputs = [as_real(tensor) for tensor in inputs]
        if self.rank() == opts.rootRank:
            return self.allgather([[as_real(target) for target in targets] for targets in outputs], inputs)
        handles = self._start_gathers(inputs)
        return self._work(handles, lambda: [])

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """An exchange of all with all, to which the root alone has something to send."""
        [output] = outputs
        flat, splits = output.new_empty(0), [0] * self.size()
        if self.rank() == opts.rootRank:
            [parts] = inputs
            check_count("scatter", "the list of inputs", parts, self.size())
            for part in parts:
                check("scatter", "an input", part, output.numel(), output.dtype)
            flat, splits = torch.cat([part.reshape(-1) for part in parts]), [output.numel()] * self.size()
        handle = _start_alltoall(flat, splits, self._next("scatter"), self._set)

        def finish() -> Any:
            received, counts = handle.wait()
            expected = [0] * self.size()
            expected[opts.rootRank] = output.numel()
            check_came("scatter", counts, expected)
            output.copy_(received.view_as(output))
            return outputs

        return self._work([handle], finish)

    def _start_gathers(self, inputs: Any) -> List[Handle]:
        name = self._next("allgather")
        return [_start_allgather(t.reshape(-1), f"{name}.{i}", self._set) for i, t in enumerate(inputs)]

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        check_count("all_gather", "the list of outputs", outputs, len(inputs))
        for targets, mine in zip(outputs, inputs):
            check_count("all_gather", "the list of outputs", targets, self.size())
            for target in targets:
                check("all_gather", "an output", target, mine.numel(), mine.dtype)
        handles = self._start_gathers(inputs)

        def finish() -> Any:
            for handle, targets in zip(handles, outputs):
                gathered, counts = handle.wait()
                check_came("all_gather", counts, [target.numel() for target in targets])
                for target, part in zip(targets, gathered.split(counts)):
                    target.copy_(part.view_as(target))
            return outputs

        return self._work(handles, finish)

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        return self.allgather_into_tensor_coalesced([output], [input])

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """The outputs are by rank, and then by input."""
        return self.allgather([list(of_input) for of_input in zip(*outputs)], inputs)

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Also of what torch's functional collectives and DTensor gather."""
        check_count("all_gather_into_tensor", "the list of outputs", outputs, len(inputs))
        for output, mine in zip(outputs, inputs):
            check("all_gather_into_tensor", "the output", output, mine.numel() * self.size(), mine.dtype)
        name = self._next("allgather")
        handles = [
            start_gather_into(output, mine, f"{name}.{i}", self._set) for i, (output, mine) in enumerate(zip(outputs, inputs))
        ]
        return self._work(handles, lambda: outputs)

    def _start_reduce_scatter(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Handle:
        """Its result is `output`, written."""
        op = operation_of(opts)
        output, input = as_real(output, op), as_real(input, op)
        dtype = check_dtype(input, "reduce_scatter")
        source, target = on_host(input), on_host(output)
        same = target.data_ptr() == output.data_ptr() and apart(source, target)
        if not same:
            target = torch.empty(output.shape, dtype=source.dtype, device="cpu")
        operation = memory.start_reducescatter(
            self._next("reduce_scatter"), source.data_ptr(), target.data_ptr(), [target.numel()] * self.size(),
            dtype, summed(op, source), process_set=self._set, keep=(source, target),
        )  # fmt: skip

        def collect() -> torch.Tensor:
            with torch.no_grad():
                self._divide_sum(op, target)
                if not same:
                    output.copy_(target)
            return output

        return Handle([operation], collect)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        for role, lists in (("the list of outputs", outputs), ("the list of lists of inputs", inputs)):
            check_count("reduce_scatter", role, lists, 1)
        [output], [parts] = outputs, inputs
        check_count("reduce_scatter", "the list of inputs", parts, self.size())
        for part in parts:
            check("reduce_scatter", "an input", part, output.numel(), output.dtype)
        return self._reduce_scatter_base(output, torch.cat([part.reshape(-1) for part in parts]), opts)

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Also of what torch's functional collectives and DTensor reduce."""
        check_count("reduce_scatter_tensor", "the list of outputs", outputs, len(inputs))
        for output, mine in zip(outputs, inputs):
            check("reduce_scatter_tensor", "the input", mine, output.numel() * self.size(), output.dtype)
        handles = [self._start_reduce_scatter(output, mine, opts) for output, mine in zip(outputs, inputs)]
        return self._work(handles, lambda: outputs)

    def barrier(self, opts: Any = None) -> Any:
        one = torch.zeros(1, dtype=torch.uint8, device="cpu")
        handle = _start_allreduce(one, True, Max, self._next("barrier"), 1.0, 1.0, self._set)
        return self._work([handle], lambda: [])

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        for role, tensors in (("the list of outputs", outputs), ("the list of inputs", inputs)):
            check_count("all_to_all", role, tensors, self.size())
            for tensor in tensors:
                check("all_to_all", "a tensor", tensor, tensor.numel(), inputs[0].dtype)
        flat = torch.cat([t.reshape(-1) for t in inputs])
        handle = _start_alltoall(flat, [t.numel() for t in inputs], self._next("alltoall"), self._set)

        def finish() -> Any:
            received, counts = handle.wait()
            check_came("all_to_all", counts, [target.numel() for target in outputs])
            for target, part in zip(outputs, received.split(counts)):
                target.copy_(part.view_as(target))
            return outputs

        return self._work([handle], finish)

    def alltoall_base(self, output: Any, input: Any, output_splits: Any, input_splits: Any, opts: Any = None) -> Any:
        check("all_to_all_single", "the output", output, output.numel(), input.dtype)
        length = output.shape[0] if output.dim() else 1
        rows = cuts("all_to_all_single", length, list(output_splits) or None, self.size())
        theirs = cuts("all_to_all_single", input.shape[0] if input.dim() else 1, list(input_splits) or None, self.size())
        splits = [n * row_of(input) for n in theirs], [n * row_of(output) for n in rows]
        handle = start_exchange_into(output, input, *splits, self._next("alltoall_base"), self._set)
        return self._work([handle], lambda: [output])

    # torch 2.13's names of the same.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    # ---- From one rank to another --------------------------------------------

    def _transfer(self, tensors: Sequence[torch.Tensor], sender: int, receiver: int, tag: int) -> Any:
        """A broadcast within the two ranks. Those of one tag, sender and receiver are received in the order of their sends."""
        [tensor] = tensors
        kind = f"group{self._name}.from{sender}.to{receiver}.tag{tag}"
        check_movable(tensor, "send" if sender == self.rank() else "recv")
        if sender == receiver:
            raise ValueError(f"rank {self._root(sender)} sends to itself, or receives from itself: copy the tensor instead")
        pair = ProcessSet([self._root(sender), self._root(receiver)])
        data = on_host(tensor)
        operation = memory.start_broadcast(
            auto_name(kind, pair), data.data_ptr(), num_bytes(data), self._root(sender),
            f"{tensor.numel()} elements of {tensor.dtype}", pair, data,
        )  # fmt: skip

        def finish() -> Any:
            if receiver == self.rank() and data.data_ptr() != tensor.data_ptr():
                tensor.copy_(data)
            return tensors

        work = self._completed_by(self._transfers, [Handle([operation], lambda: None)], finish)
        work.get_future()  # in its turn
        return work

    def send(self, tensors: Any, receiver: int, tag: int = 0) -> Any:
        """Done once the receiver has the tensor."""
        return self._transfer(tensors, self.rank(), receiver, tag)

    def recv(self, tensors: Any, sender: int, tag: int = 0) -> Any:
        return self._transfer(tensors, sender, self.rank(), tag)

    def recv_anysource(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            "recv() without src= is not supported by the psring backend: name the rank that sends, or make a group with "
            'backend="gloo" for it'
        )

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
    def _device_types(self) -> List[torch.device]:
        """Which torch.distributed.checkpoint asks for."""
        return [torch.device("cpu")]

    def _get_backend(self, device: Any) -> Any:
        """What does a group's work on a device, which torch asks for: of other groups, which may have several, a part."""
        if torch.device(device).type == "cpu":
            return self
        return super()._get_backend(device)

    @property
    def supports_splitting(self) -> bool:
        return False

    @property
    def supports_coalescing(self) -> bool:
        return False

    @property
    def supports_time_estimate(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"PsringProcessGroup({self._set})"


def _place(rank: int, size: int) -> Dict[str, Any]:
    """Of init(): nothing where torchrun says the same, whose store then carries the coordinator's address."""
    same = (os.environ.get("RANK"), os.environ.get("WORLD_SIZE")) == (str(rank), str(size))
    return {} if same and TorchrunStore.is_there() else {"rank": rank, "size": size}


def _create(options: Any, _: Any = None) -> PsringProcessGroup:
    """Of init_process_group and new_group."""
    ranks = list(options.global_ranks_in_group)
    check_order(ranks)
    if not _job.is_initialized():
        place = _place(options.group_rank, options.group_size)
        channel = None
        if place and not os.environ.get("PSRING_COORDINATOR"):
            channel = _channels.GroupStore(options.store, options.group_rank, at_store=ranks[:1] in ([], [0]))
        with _channels.using(channel):
            _lifecycle.init(mode="ring", step_timeout_s=step_timeout_s(options.timeout), **place)
    if _job.mode() != "ring":
        raise ValueError(f'the psring backend needs mode="ring"; this job is in mode "{_job.mode()}"')
    whole = not ranks or len(ranks) == _job.size()
    if whole and options.group_size != _job.size():
        raise ValueError(f"torch.distributed has {options.group_size} ranks, psring's job {_job.size()}")
    process_set = global_process_set if whole else ProcessSet(ranks)
    return PsringProcessGroup(options.group_rank, options.group_size, process_set, str(options.group_id))


__all__ = ["PsringProcessGroup"]
