"""What collectives do with tensors and arguments that no script means to give them."""

import numpy
import pytest
import torch

import psring
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


def without_memory():
    fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")
    ps.init()
    collectives = (
        ps.allreduce, ps.allreduce_, ps.allgather, ps.alltoall, ps.reducescatter, lambda x: ps.broadcast(x, 0),
        lambda x: ps.broadcast_(x, 0), lambda x: ps.grouped_allreduce([x]), lambda x: ps.broadcast_parameters([x]),
    )  # fmt: skip
    with fake_tensor.FakeTensorMode():
        for call in collectives:
            with pytest.raises(TypeError, match="has no data, as one of torch's FakeTensorMode"):
                call(torch.ones(4))
    empty = ps.allreduce(torch.ones(0)).numel() + ps.allgather(torch.ones(0, 2)).numel() + ps.alltoall(torch.ones(0)).numel()
    return empty, ps.sum(1)


def test_a_tensor_without_memory_is_refused():
    assert run(without_memory) == [(0, 2)] * 2


def addresses():
    ps.init()
    values = numpy.array([{"rank": ps.rank()}, None], dtype=object)
    for call in (psring.broadcast_, psring.allgather_bytes):
        with pytest.raises(TypeError, match="use broadcast_object"):
            call(values)
    return values.tolist(), psring.broadcast_object(values).tolist()


def test_objects_of_an_array_do_not_travel_as_addresses():
    assert run(addresses) == [([{"rank": rank}, None], [{"rank": 0}, None]) for rank in range(2)]


def roots_that_differ():
    ps.init()
    for call in (ps.broadcast_object, psring.broadcast_bytes):
        with pytest.raises(ps.PsringError, match="of root 0.* of root 1"):
            call(b"mine", root_rank=ps.rank())
    return ps.broadcast_object(ps.rank(), root_rank=1)


def test_ranks_that_name_different_roots_of_an_object_hear_of_it():
    assert run(roots_that_differ) == [1, 1]
