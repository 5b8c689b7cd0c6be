"""What scripts do with tensors that lie in psring's memory, or with odd memory of their own."""

import copy
import io
import os

import pytest
import torch

import psring.torch as ps
from ranks import models_in_memory, run
from test_bits import device

pytestmark = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in has no memory of its own"
)

UPDATES = pytest.mark.parametrize("update", ["local", "fused"])


def images():
    return torch.ones(1, 2, 4, 4, device=device())


def step(net, optimizer, scale=1.0, **zero):
    optimizer.zero_grad(**zero)
    (net(images()) * scale).sum().backward()
    optimizer.step()


def convolution():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(2, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 2)).to(device())


def beside_plain_torch(update, disturb, to_none=True):
    """The greatest differences of weights and, with "local", of gradients, where disturb(net, step) comes
    after each of six steps."""
    ps.init()
    net, plain = convolution(), convolution()
    optimizer = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.01), model=net, update=update)
    reference = torch.optim.SGD(plain.parameters(), lr=0.01)
    for number in range(6):
        for model, its in ((net, optimizer), (plain, reference)):
            step(model, its, number + 1.0, set_to_none=to_none)
            disturb(model, number)
    pairs = list(zip(net.parameters(), plain.parameters()))
    weights = max(float((a - b).abs().max()) for a, b in pairs)
    gradients = max(float((a.grad - b.grad).abs().max()) for a, b in pairs) if update == "local" else 0.0
    return weights, gradients


def to_half_and_back(net, number):
    if number == 1:
        net.half()
        net.float()


def clip_by_value(net, number):
    for param in net.parameters():
        param.grad.data = param.grad.data.clamp(-1, 1)


def to_channels_last(net, number):
    if number == 1:
        net.to(memory_format=torch.channels_last)


def share(net, number):
    if number == 1:
        net.share_memory()


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("update, disturb", [
    ("local", to_half_and_back), ("local", clip_by_value), ("local", to_channels_last), ("local", share),
    ("fused", share), ("fused", to_channels_last),
])  # fmt: skip
def test_training_goes_on_where_a_script_gives_tensors_other_memory(update, disturb, to_none):
    ranks = run(beside_plain_torch, args=(update, disturb, to_none))
    assert max(max(differences) for differences in ranks) < 1e-6


def share_then_synchronise():
    ps.init(sync="async")
    net = torch.nn.Linear(1, 1)
    optimizer = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
    for number in range(4):
        if number == 0 or ps.rank() == 1:
            optimizer.zero_grad()
            net(torch.ones(1, 1)).sum().backward()
            optimizer.step()
        if number == 0 and ps.rank() == 0:
            net.share_memory()
    ps.barrier()
    optimizer.synchronize_parameters()
    return net.weight.item()


def test_parameters_that_were_moved_are_synchronised():
    first, second = run(share_then_synchronise, mode="ps")
    assert first == second


def views_of(net, update):
    tensors = [param if update == "fused" else param.grad for param in net.parameters()]
    array = [tensors[2].detach().numpy()] if device() == "cpu" else []
    return [tensors[0].detach(), tensors[2].detach()[1], *array, *net.state_dict().values()]


def hold_views(update, end):
    ps.init()
    net = convolution()
    optimizer = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), model=net, update=update)
    step(net, optimizer)
    held = views_of(net, update)
    before = copy.deepcopy(held)
    loss = net(images()).sum()
    if end == "close":
        optimizer.close()
    elif end == "load":
        optimizer.load_state_dict(optimizer.state_dict())
    else:
        ps.shutdown()
    for _ in range(20):  # what was freed would be used again
        torch.randn(100000, device=device())
    as_before = all(bool((a == b).all()) for a, b in zip(held, before))
    loss.backward()  # reads the parameters of before
    return as_before


@UPDATES
@pytest.mark.parametrize("end", ["close", "load", "shutdown"])
def test_what_a_script_holds_outlives_the_optimizers_memory(update, end):
    assert run(hold_views, args=(update, end)) == [True, True]


def models_after_each_other(update):
    ps.init()
    left = []
    for _ in range(3):
        net = convolution()
        optimizer = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net, update=update)
        step(net, optimizer)
        optimizer.close()
        left.append(models_in_memory())
    return left


@UPDATES
def test_memory_over_which_nothing_lies_is_freed(update):
    for left in run(models_after_each_other, args=(update,)):
        assert len(set(left)) == 1, left


def save_a_layer():
    ps.init()
    net = torch.nn.Sequential(torch.nn.Linear(500, 500), torch.nn.Linear(500, 2))
    optimizer = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net, update="fused")
    net(torch.ones(1, 500)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save(net[1].state_dict(), file)
    return len(file.getvalue())


def test_a_saved_layer_is_that_layer_alone():
    assert max(run(save_a_layer)) < 10000


def broadcast_odd_tensors():
    ps.init()
    me = float(ps.rank() + 1)
    strided = torch.full((1, 2), me)[:, 0]  # one element, stride 2
    conjugate = torch.full((2,), complex(me, me)).conj()
    negative = torch.full((2,), complex(me, me)).conj().imag
    empty = torch.ones(1, 0).expand(3, 0)  # no elements that could share memory
    odd = {"strided": strided, "conjugate": conjugate, "negative": negative, "empty": empty}
    ps.broadcast_parameters(odd, root_rank=1)
    net = torch.nn.Linear(1, 1)
    net.register_buffer("odd", torch.full((1, 2), me)[:, 0])
    optimizer = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
    net(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    return strided.tolist(), conjugate.tolist(), negative.tolist(), net.odd.tolist()


def test_tensors_of_any_memory_are_broadcast():
    assert run(broadcast_odd_tensors) == [([2.0], [2 - 2j] * 2, [-2.0] * 2, [1.0])] * 2


def sparse_with_a_long_name():
    ps.init()
    net = torch.nn.Module()
    inner = net
    for _ in range(30):
        inner.a_module_within = torch.nn.Module()
        inner = inner.a_module_within
    inner.table = torch.nn.Embedding(4, 1, sparse=True)
    optimizer = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0), model=net)
    before = inner.table.weight.detach().clone()
    inner.table(torch.tensor([ps.rank()])).sum().backward()
    optimizer.step()
    return (before - inner.table.weight.detach()).flatten().tolist()


def test_a_sparse_gradients_name_may_be_long():
    assert run(sparse_with_a_long_name) == [pytest.approx([0.5, 0.5, 0, 0])] * 2


def batch_norm_variants():
    ps.init()
    ours = ps.SyncBatchNorm(3, track_running_stats=False)
    theirs = torch.nn.BatchNorm1d(3, track_running_stats=False)
    batch = torch.randn(4, 3) * (ps.rank() + 1) + ps.rank()
    same = torch.equal(ours.eval()(batch), theirs.eval()(batch))
    without_bias = ps.SyncBatchNorm(3)
    without_bias.bias = None
    plain = torch.nn.BatchNorm1d(3, affine=False)
    alone = ps.broadcast(batch, 0, name="batch")
    return same, torch.allclose(without_bias(alone), plain(alone), atol=1e-5)


def test_sync_batch_norm_without_a_bias_and_in_evaluation():
    assert run(batch_norm_variants) == [(True, True)] * 2


def error_of(case):
    ps.init()
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))

    def make(layer, **more):
        return ps.DistributedOptimizer(
            torch.optim.SGD(layer.parameters(), lr=0.1), named_parameters=layer.named_parameters(), **more
        )

    first = make(net[0], op=ps.Sum) if case == "sum" else make(net)
    net(torch.ones(1, 2)).sum().backward()
    try:
        if case == "sum":
            try:
                first.add_param_group({"params": list(net[1].parameters())})
            finally:
                first.step()  # as the error says, and the group again
                first.add_param_group({"params": list(net[1].parameters())})
                net(torch.ones(1, 2)).sum().backward()
                first.step()
        elif case == "shutdown":
            first.step()
            ps.shutdown()
            net(torch.ones(1, 2)).sum().backward()
            first.step()
        else:
            first.step()
            second = make(net)
            for _ in range(2):
                net(torch.ones(1, 2)).sum().backward()
                second.step()
    except (RuntimeError, ps.PsringError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case, words", [
    ("sum", "would be summed again. Call it after step()"),
    ("shutdown", "has ended: make a new one after init()"),
    ("two", "belongs to two DistributedOptimizers"),
])  # fmt: skip
def test_a_mistake_with_optimizers_is_named(case, words):
    assert all(words in told for told in run(error_of, args=(case,)))
