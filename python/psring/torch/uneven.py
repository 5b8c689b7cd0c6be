"""join(): a rank that has run out of data takes part in what the others still do."""

import gc
from typing import Any, List

from .._job import size
from .._lib import PsringError
from ..collectives import last_to_join, start_join
from .reducer import Reducer, reducers_in_use


def _check_possible(reducers: List[Reducer]) -> None:
    """Raises here and at once what would let the others wait for this rank."""
    obstacles = [reducer.join_obstacle() for reducer in reducers]
    found = f"{len(reducers)} optimizers" if len(reducers) > 1 else "".join(obstacles)
    if found:
        raise PsringError(
            f"join() cannot take part in the steps of {found}. It can in those of one optimizer of all ranks, with "
            'update="local", compress="none", dense gradients and no find_unused=True, in the ring and in ps-bsp: '
            "otherwise give all ranks as many batches, as DistributedSampler does; an optimizer that is no longer "
            "used ends with its close()"
        )


def join(device: Any = None) -> int:
    """Says that this rank has no more data, and waits until every rank has said so.

    Until then it takes part with zeros in the others' barriers, and in their allreduces and
    reducescatters that sum or average over all ranks; their other collectives fail meanwhile.
    So it does in the steps of a DistributedOptimizer, whose mean is still over all ranks: of one
    optimizer of all ranks, with update="local", no compression, no find_unused=True and no sparse
    gradients (sparse_as_dense=True makes them dense), not in mode ddp. Call it after at least one step.
    p.grad stays as it is. Returns the last rank to call it, which has seen the most steps:

        last = hvd.join()
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
        hvd.broadcast_optimizer_state(optimizer, root_rank=last)

    Without the second, momentum and Adam's averages stay each rank's own, and part the ranks. A
    scheduler that steps with each batch takes the last rank's state, too:

        scheduler.load_state_dict(hvd.broadcast_object(scheduler.state_dict(), root_rank=last))

    device is Horovod's, and not needed.
    """
    gc.collect()  # so that all ranks find the same optimizers gone
    reducers = reducers_in_use() if size() > 1 else []
    _check_possible(reducers)
    operation = start_join()
    for reducer in reducers:
        reducer.move_gradients_out()
        others_steps = 0
        while reducer.exchange.take_part_without_data():
            others_steps += 1
        reducer.exchange.has_joined(others_steps)
    return last_to_join(operation)
