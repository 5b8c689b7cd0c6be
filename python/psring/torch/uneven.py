"""join(): a rank that has run out of data takes part in what the others still do."""

import gc
from typing import Any

from .._lib import PsringError
from ..collectives import last_to_join, start_join
from .gradient_exchange import open_models


def join(device: Any = None) -> int:
    """Says that this rank has no more data, and waits until every rank has said so.

    Until then it takes part with zeros in the others' barriers, and in their allreduces and
    reducescatters that sum or average over all ranks; their other collectives fail meanwhile.
    So it does in the steps of a DistributedOptimizer, whose mean is still over all ranks: of one
    optimizer, with update="local", no compression, no find_unused=True and no sparse gradients
    (sparse_as_dense=True makes them dense). Call it after at least one step.
    Returns the last rank to call it, which has seen the most steps:

        last = hvd.join()
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)

    device is Horovod's, and not needed.
    """
    gc.collect()  # so that all ranks find the same optimizers gone
    models = [model for model in open_models() if model.in_use()]
    if len(models) > 1 or any(not model.counts_ranks for model in models):
        raise PsringError(
            'join() takes part in the steps of one optimizer with update="local" and compress="none": '
            "otherwise give all ranks as many batches, as DistributedSampler does; an optimizer that is no longer "
            "used ends with its close()"
        )
    operation = start_join()
    while any([model.take_part_without_data() for model in models]):
        pass
    for model in models:
        model.has_joined()
    return last_to_join(operation)
