"""Groups of collectives: small tensors of an allreduce travel together, and no call waits for the one before."""

import os

import pytest
import torch

import psring.torch as ps
from psring import _lib
from psring import collectives as memory
from ranks import run


def count_calls():
    """The names that the library is given."""
    names, start = [], memory.start_allreduce
    memory.start_allreduce = lambda name, *rest, **ways: names.append(name) or start(name, *rest, **ways)
    return names


def tensors_of(me):
    """40 of several dtypes and shapes, small and large, with and without gaps."""
    torch.manual_seed(me)
    some = [torch.randn(3, i + 1).t() for i in range(30)] + [torch.tensor(1.5 + me), torch.zeros(0, 4)]
    some += [torch.randn(200, 200), torch.full((5,), me, dtype=torch.int64), torch.randn(4).to(torch.bfloat16)]
    return some + [torch.randn(2, 6, dtype=torch.float64)[:, ::2], torch.arange(4, dtype=torch.int64)] + [torch.randn(7)] * 3


def reduce_groups():
    ps.init()
    me = ps.rank()
    close = lambda a, b: torch.allclose(a, b, atol=0.05 if a.dtype == torch.bfloat16 else 1e-5)  # noqa: E731
    expected = [sum(tensors[1:], start=tensors[0]) for tensors in zip(*[tensors_of(rank) for rank in range(ps.size())])]
    out, names = {}, count_calls()
    mine = tensors_of(me)
    kept = [tensor.clone() for tensor in mine]
    reduced = ps.grouped_allreduce(mine, op=ps.Sum)
    out["calls"] = len(names)
    out["sums"] = all(map(close, reduced, expected))
    out["kinds"] = all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(reduced, mine))
    out["kept"] = all(torch.equal(a, b) for a, b in zip(mine, kept))
    out["own memory"] = all(tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size() for tensor in reduced)
    out["bits"] = [tensor.double().sum().item() for tensor in reduced]
    places = [tensor.data_ptr() for tensor in mine]
    handle = ps.grouped_allreduce_async_(mine[:-2], op=ps.Sum)
    ps.synchronize(handle)
    out["in place"] = all(map(close, mine[:-2], reduced)) and places == [t.data_ptr() for t in mine]
    out["poll"] = ps.poll(handle)
    out["floats"] = [t.item() for t in ps.grouped_allreduce([torch.tensor(float(i * me)) for i in range(20)])]
    out["few"] = [t.item() for t in ps.grouped_allreduce([torch.tensor(i * me) for i in range(3)], op=ps.Max)]
    out["generator"] = len(ps.grouped_allgather(torch.ones(1) for _ in range(2)))
    return out


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_a_group_is_reduced_as_each_of_its_tensors(mode):
    ranks = run(reduce_groups, 3, mode)
    for out in ranks:
        # One for each dtype, one for the large tensor, one that compares.
        assert out["calls"] == 6
        assert out["sums"] and out["kinds"] and out["kept"] and out["own memory"] and out["in place"] and out["poll"]
        assert out["floats"] == [float(i) for i in range(20)] and out["few"] == [0, 2, 4] and out["generator"] == 2
        assert out["bits"] == ranks[0]["bits"]


def differ():
    ps.init()
    me, told = ps.rank(), {}
    for case, mine in {
        "shapes": [torch.ones(2)] * 20 + [torch.ones(2, 3) if me else torch.ones(3, 2)],
        "nothing to pack": [torch.ones(20000 if me else 10000)] * 16,
        "packs": [torch.ones(2)] * 20 + [torch.ones(2, dtype=torch.float64 if me else torch.float32)],
    }.items():
        try:
            handle = ps.grouped_allreduce_async(mine, name=case)
            while not ps.poll(handle):
                pass
            ps.synchronize(handle)
        except ps.PsringError as error:
            told[case] = str(error)
    return told


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in compares no sizes")
def test_ranks_with_other_tensors_are_told_which():
    first, other = run(differ)
    assert first == other
    assert "array 20, float32[3, 2] on rank 0, array 20, float32[2, 3] on rank 1" in first["shapes"]
    assert "array 0, float32[10000] on rank 0, array 0, float32[20000] on rank 1" in first["nothing to pack"]
    assert "array 20, float32[2] on rank 0, array 20, float64[2] on rank 1" in first["packs"]


def fail_in_part():
    """How many operations hold on to memory after each failure."""
    ps.init()
    me, held = ps.rank(), []
    for mine in ([torch.ones(1 + me), torch.ones(100_000)], [torch.ones(2)] * 20 + [torch.ones(2 + me), torch.ones(100_000)]):
        handle = ps.grouped_allreduce_async(mine, op=ps.Sum)
        errors = []
        for _ in range(2):
            with pytest.raises(ps.PsringError) as raised:
                ps.synchronize(handle)
            errors.append(str(raised.value))
        assert errors[0] == errors[1] and ps.poll(handle)
        held.append(len(_lib._running))
    with pytest.raises(TypeError, match="to_dense"):  # when the first has started
        ps.grouped_allgather([torch.ones(2), torch.ones(2).to_sparse()])
    return held + [len(_lib._running)], ps.sum(1)


def test_a_group_that_has_failed_in_part_keeps_nothing():
    assert run(fail_in_part) == [([0, 0, 0], 2)] * 2


def differentiate():
    ps.init()
    me, out = ps.rank(), {}

    def leaves(count):
        return [torch.full((2,), float(i + 1), requires_grad=i != 1) for i in range(count)]

    for count in (2, 20):  # alone, and together
        mine = leaves(count)
        reduced = ps.grouped_allreduce(mine, op=ps.Sum)
        loss = (reduced[0] * (me + 1)).sum()
        if me == 1 and count > 2:  # here alone
            loss = loss + reduced[2].sum()
        loss.backward()
        out[f"flags of {count}"] = [result.requires_grad for result in reduced[:3]]
        out[f"sum of {count}"] = [None if t.grad is None else t.grad.tolist() for t in mine[:3]]

    rows = torch.ones(me + 1, 2, requires_grad=True)
    [gathered, numbers] = ps.grouped_allgather([rows, torch.tensor([me])])
    (gathered * torch.arange(3.0).reshape(3, 1)).sum().backward()
    out["gather"] = (rows.grad.tolist(), numbers.tolist())

    four = torch.ones(4, requires_grad=True)
    [scattered] = ps.grouped_reducescatter([four])
    (scattered * (me + 1)).sum().backward()
    out["scatter"] = four.grad.tolist()

    for call in (ps.grouped_allreduce, ps.grouped_allgather, ps.grouped_reducescatter):
        x = torch.ones(2, requires_grad=True)
        [gradient] = torch.autograd.grad((call([x])[0] ** 3).sum(), x, create_graph=True)
        gradient.sum().backward()
        out[f"twice, {call.__name__}"] = x.grad.tolist()

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="grouped_allreduce with op=Max has no gradient"):
        ps.grouped_allreduce([x], op=ps.Max)[0].sum().backward()
    return out


def test_groups_have_the_gradients_of_their_calls():
    for me, out in enumerate(run(differentiate)):
        assert out["flags of 2"] == [True, False] and out["flags of 20"] == [True, False, True]
        assert out["sum of 2"] == [[3, 3], None]
        assert out["sum of 20"] == [[3, 3], None, [1, 1]]
        assert out["gather"] == ([[[0, 0]], [[1, 1], [2, 2]]][me], [0, 1])
        assert out["scatter"] == [1, 1, 2, 2]
        # As those of the single calls: test_collectives.py.
        assert out["twice, grouped_allgather"] == [3, 3] and out["twice, grouped_reducescatter"] == [6, 6]
        assert out["twice, grouped_allreduce"] == [6, 6]
