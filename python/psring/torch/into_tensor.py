"""Collectives of torch.distributed into one tensor of the caller's, whose size says what is to come."""

from typing import Any, Callable, List, Optional, Sequence

import torch

from .. import _lib
from .. import collectives as memory
from .._rows import tag
from ..process_sets import ProcessSet
from ._tensors import apart, check_movable, increment_version, num_bytes, on_host
from .collectives import Handle
from .group_arguments import check_came


def _start(
    what: str, output: torch.Tensor, input: torch.Tensor, own: Optional[int], expected: List[int], process_set: ProcessSet,
    start: Callable[..., _lib.Operation],
) -> Handle:  # fmt: skip
    """`start` is told what to send, and the arguments of start_allgather() and start_alltoall() from the tag on.

    own: in `output`, the place of what this rank brings for itself, in elements, where `input` may lie; None: nowhere.
    """
    check_movable(input, what)
    source = on_host(input)
    plain = output.device.type == "cpu" and output.is_contiguous() and not output.is_conj() and not output.is_neg()
    in_place = own is not None and source.data_ptr() == output.data_ptr() + own * output.element_size()
    direct = plain and (in_place or apart(source, output))
    place = (output.data_ptr(), num_bytes(output)) if direct else (None, 0)
    text = tag(str(source.dtype).replace("torch.", ""), [])
    operation = start(source, text, process_set, (source, output), place)

    def collect() -> torch.Tensor:
        sizes = operation.sizes(len(expected))
        check_came(what, [size // source.element_size() for size in sizes], expected)
        if direct:
            increment_version(output)
        else:
            come = torch.empty(output.shape, dtype=output.dtype, device="cpu")
            operation.result(come.data_ptr(), sum(sizes))
            with torch.no_grad():
                output.copy_(come)
        return output

    return Handle([operation], collect)


def start_gather_into(output: torch.Tensor, input: torch.Tensor, name: str, process_set: ProcessSet) -> Handle:
    """Everybody's `input`, one after the other. The sizes have been compared."""

    def start(source: torch.Tensor, *more: Any) -> _lib.Operation:
        return memory.start_allgather(name, source.data_ptr(), num_bytes(source), *more)

    own, expected = process_set.rank() * input.numel(), [input.numel()] * process_set.size()
    return _start("all_gather_into_tensor", output, input, own, expected, process_set, start)


def start_exchange_into(
    output: torch.Tensor, input: torch.Tensor, sent: Sequence[int], expected: List[int], name: str, process_set: ProcessSet
) -> Handle:
    """sent, expected: elements for and from each rank of the set; the sums have been compared with the tensors."""

    def start(source: torch.Tensor, *more: Any) -> _lib.Operation:
        return memory.start_alltoall(name, source.data_ptr(), [n * source.element_size() for n in sent], *more)

    return _start("all_to_all_single", output, input, None, expected, process_set, start)


__all__ = ["start_exchange_into", "start_gather_into"]
