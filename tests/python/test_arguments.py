"""What collectives do with tensors and arguments that no script means to give them."""

import pytest
import torch

import psring.torch as ps
from ranks import run


def in_place_between_forward_and_backward():
    ps.init()
    said = []
    for change in (
        ps.allreduce_,
        lambda saved: ps.broadcast_(saved, 1),
        lambda saved: ps.grouped_allreduce_([saved]),
        lambda saved: ps.grouped_allreduce_(iter([saved])),
        lambda saved: ps.synchronize(ps.broadcast_async_(saved, 0)),
    ):
        saved = torch.ones(2, requires_grad=True) * (ps.rank() + 1)
        loss = saved.pow(2).sum()
        change(saved.detach())
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as error:
            loss.backward()
        said.append(str(error.value))
    with torch.inference_mode():
        untracked = torch.ones(2)
    return len(said), ps.allreduce_(untracked, op=ps.Sum).tolist()


def test_a_backward_does_not_take_what_a_collective_wrote_for_what_it_saved():
    assert run(in_place_between_forward_and_backward) == [(5, [2, 2])] * 2
