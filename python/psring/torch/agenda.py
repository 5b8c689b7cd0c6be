"""What all ranks agree on before their first exchange."""

import json
from typing import List, NamedTuple

import torch

from .. import collectives as memory
from ..process_sets import ProcessSet
from .entry import Entry
from .parameter_watch import ParameterWatch


class Agenda(NamedTuple):
    dense: List[Entry]  # those of dense gradients, in the order of their buckets
    places: List[str]  # by rank: where its gradients lie


def agree_on_agenda(
    entries: List[Entry], order: List[int], place: str, watch: ParameterWatch, name: str, process_set: ProcessSet,
    sparse_as_dense: bool,
) -> Agenda:  # fmt: skip
    """Collective. `sparse_dim` of an entry becomes that of any rank's gradient, and `watch` compares the parameters.

    Args:
        order: the numbers of the entries whose gradients became ready, one after another. The set's first rank's is
            taken, and those that it has not used come last.
        place: where this rank's gradients lie.
        name: of the exchange.
    """
    sparse = {}
    for entry in entries:
        entry.dtype = entry.param.dtype  # the script may have converted it since
        grad = entry.param.grad
        if grad is not None and grad.layout != torch.strided and not sparse_as_dense:
            sparse[entry.index] = grad.sparse_dim()
    parameters = watch.first_digest()
    mine = {
        "order": order if process_set.rank() == 0 else None, "sparse": list(sparse.items()), "parameters": parameters,
        "place": place,
    }  # fmt: skip
    told = memory.allgather_bytes(json.dumps(mine).encode(), name + ".order", process_set)
    everybody = [json.loads(text) for text in told]
    watch.compare_first(parameters, [other["parameters"] for other in everybody], process_set.ranks[0])
    for other in everybody:
        for index, sparse_dim in other["sparse"]:
            entries[index].sparse_dim = sparse_dim
    first_order = everybody[0]["order"]
    ready = set(first_order)
    unused = [index for index in range(len(entries)) if index not in ready]
    dense = [entries[index] for index in first_order + unused if not entries[index].sparse_dim]
    return Agenda(dense, [other["place"] for other in everybody])


__all__ = ["Agenda", "agree_on_agenda"]
