"""Ranks with different numbers of batches."""

import os
import warnings

import pytest
import torch

import psring.torch as ps
from ranks import run

pytestmark = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in does not know models that join"
)


def train_unevenly():
    ps.init()
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    model.register_buffer("batches", torch.zeros(2))
    opt = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    for step in range(2 + 2 * ps.rank()):  # rank 1 has two batches more, rank 2 four
        opt.zero_grad()
        model.batches += ps.rank() + 1
        model(torch.ones(1, 3) * (ps.rank() + 1)).sum().backward()
        opt.step()
        mean = model.weight.grad.clone()
        if step == 3:  # rank 0 is out of data; the metric of the others is no less right
            assert ps.sum(torch.tensor(1.0)).item() == ps.size() - 1
    last = ps.join()
    ps.broadcast_parameters(model.state_dict(), root_rank=last)
    return last, mean.tolist(), model.weight.detach().tolist(), model.batches.tolist()


def train_long_alone():
    ps.init(same_host="off")
    model = torch.nn.Linear(3, 2)
    opt = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.001), model=model)
    for step in range(1 if ps.rank() == 1 else 200):
        opt.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        opt.step()
    return ps.join()


# What a rank says of itself would have halved itself to 0 by then.
def test_a_rank_without_data_stays_for_as_long_as_another_has_some():
    assert run(train_long_alone, size=2, mode="ring", timeout=120) == [0, 0]


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_who_has_no_more_data_brings_zeros(mode):
    ranks = run(train_unevenly, size=3, mode=mode, timeout=120)
    assert [rank[0] for rank in ranks] == [2, 2, 2]
    assert ranks[0][1][0] == pytest.approx([2.0] * 3)  # (1 + 2 + 3) / 3
    assert ranks[1][1][0] == pytest.approx([5 / 3] * 3)  # (0 + 2 + 3) / 3
    assert ranks[2][1][0] == pytest.approx([1.0] * 3)  # (0 + 0 + 3) / 3
    assert ranks[0][2] == ranks[1][2] == ranks[2][2]
    # A buffer is rank 0's while all have data (2 steps), then each rank's own (4 of rank 2's).
    assert [rank[3] for rank in ranks] == [[2.0 + 4 * 3] * 2] * 3


def call_without_names():
    """Three epochs of other lengths, with calls among some ranks in which the others have no count."""
    ps.init()
    me, size, out = ps.rank(), ps.size(), []
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), ps.SyncBatchNorm(4), torch.nn.Linear(4, 2))
    opt = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model=model)
    pair = ps.ProcessSet([0, 1])
    for epoch in range(3):
        for _ in range(1 + (me + epoch) % size):
            opt.zero_grad()
            model(torch.randn(4, 3)).sum().backward()
            opt.step()
            ps.mean(1.0), ps.sum(torch.ones(2)), ps.barrier()
            ps.allreduce(torch.ones(2)), ps.grouped_allreduce([torch.ones(1)] * 20), ps.reducescatter(torch.ones(3))
        ps.broadcast_parameters(model.state_dict(), root_rank=ps.join())
        seen = [ps.mean(float(me)), ps.sum(torch.tensor(me)).item(), ps.broadcast(torch.tensor(me), 1).item()]
        seen += [ps.allreduce(torch.tensor(me), op=ps.Max).item(), ps.allgather(torch.tensor([me])).tolist()]
        seen += [t.item() for t in ps.grouped_allreduce([torch.tensor(me)] * 2, op=ps.Sum)]
        if pair.included():
            assert [ps.sum(me, pair) for _ in range(epoch + 1)] == [1] * (epoch + 1)
        ps.barrier()
        out.append(seen)
    return out


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_calls_without_names_mean_the_same_after_an_uneven_epoch(mode):
    for out in run(call_without_names, size=3, mode=mode, timeout=120):
        assert out == [[1.0, 3, 1, 2, [0, 1, 2], 3, 3]] * 3


def join_without_anything_to_train():
    ps.init()
    model = torch.nn.Linear(3, 2).requires_grad_(False)
    opt = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    for _ in range(1 + ps.rank()):
        opt.step()
    return ps.join()


def test_join_passes_over_an_optimizer_that_trains_nothing():
    assert len(set(run(join_without_anything_to_train))) == 1


def sum_after_join():
    ps.init()
    model = torch.nn.Linear(1, 1, bias=False)
    opt = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model, op=ps.Sum)
    model(torch.ones(1, 1)).sum().backward()
    ps.join()
    with pytest.raises(RuntimeError, match="would sum what is already a sum"):
        model(torch.ones(1, 1)).sum().backward()
    return opt is not None


def test_a_sum_stays_one_over_join():
    assert run(sum_after_join) == [True, True]


def join_alone(options):
    ps.init()
    model = torch.nn.Linear(3, 2)
    opt = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model, **options)
    model(torch.ones(1, 3)).sum().backward()
    opt.step()
    return ps.join()


@pytest.mark.parametrize("mode, options", [("ring", {"find_unused": True}), ("ps", {"update": "fused"}), ("ddp", {})])
def test_a_worker_alone_joins_whatever_its_optimizer(mode, options):
    assert run(join_alone, size=1, mode=mode, args=(options,)) == [0]


def join_where_it_cannot(case):
    ps.init()
    model = torch.nn.Linear(3, 2)
    options = {
        "set": {"process_set": ps.ProcessSet([0, 1])}, "unused": {"find_unused": True}, "fused": {"update": "fused"},
        "compressed": {"compress": "int8"},
    }  # fmt: skip
    opt = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model, **options.get(case, {}))
    if ps.rank() < 2:
        opt.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        opt.step()
    if ps.rank() == 0:
        ps.join()
    ps.barrier()  # which waits for rank 0


@pytest.mark.parametrize("case", ["set", "unused", "fused", "compressed", "ddp"])
def test_join_says_at_once_where_it_cannot_take_part(case):
    what = {
        "set": "an optimizer of a process set", "unused": "an optimizer with find_unused=True", "ddp": 'an optimizer in mode "ddp"',
        "fused": 'an optimizer with update="fused"', "compressed": "an optimizer with compression",
    }[case]  # fmt: skip
    with pytest.raises(AssertionError, match=rf"rank 0 ended with 1\n(.|\n)*PsringError: join\(\) cannot .* of {what}\. "):
        run(join_where_it_cannot, 3 if case == "set" else 2, "ddp" if case == "ddp" else "ring", timeout=30, args=(case,))


def keep_gradients_over_join():
    ps.init()
    model = torch.nn.Linear(3, 2)
    opt = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    for step in range(2 + 2 * ps.rank()):
        before = [p.grad for p in model.parameters()]
        opt.zero_grad()
        model(torch.ones(1, 3) * (step + 1)).sum().backward()
        opt.step()
    now = [p.grad for p in model.parameters()]
    values = [g.clone() for g in before + now]
    ps.join()
    assert all(p.grad is g for p, g in zip(model.parameters(), now))
    return all(torch.equal(a, b) for a, b in zip(before + now, values)) and values[-1].any().item()


def test_gradients_stay_as_they_are_while_others_make_steps():
    assert run(keep_gradients_over_join) == [True, True]


def train_with_state(recipe):
    """Whether the ranks end with the same, and what a rank is warned of."""
    ps.init()
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    opt = ps.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), model=model)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.9)

    def train(steps):
        for step in range(steps):
            opt.zero_grad()
            model(torch.randn(1, 3)).sum().backward()
            opt.step()
            if recipe == "schedule":
                schedule.step()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        train(2 + 2 * ps.rank())
        last = ps.join()
        ps.broadcast_parameters(model.state_dict(), root_rank=last)
        if recipe:
            ps.broadcast_optimizer_state(opt, root_rank=last)
            schedule.load_state_dict(ps.broadcast_object(schedule.state_dict(), root_rank=last))
        train(3)
    first, second = ps.allgather_object(model.weight.tolist())
    return first == second, [str(w.message) for w in told if "had fewer batches" in str(w.message)]


def test_an_optimizers_state_is_told_where_it_is_forgotten():
    for recipe in ("state", "schedule"):
        assert run(train_with_state, args=(recipe,)) == [(True, [])] * 2
    [(same, told), (_, nothing)] = run(train_with_state, args=("",))
    assert not same and not nothing
    [message] = told
    assert "call broadcast_optimizer_state(optimizer, root_rank=last) on all ranks" in message
