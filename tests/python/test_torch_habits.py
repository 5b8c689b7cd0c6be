"""What torch lets a script do that could part the ranks, or their numbers from torch's: it works, or is told."""

import abc
import os
import subprocess
import sys
import warnings

import pytest
import torch

import psring.torch as ps
from ranks import PYTHONPATH, run

UPDATES = pytest.mark.parametrize("update", ["local", "fused"])


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def loss_of(net, step, rank=None):
    generator = torch.Generator().manual_seed(10 * step + (ps.rank() if rank is None else rank))
    return net(torch.randn(5, 4, generator=generator)).square().mean()


def distributed(net, **options):
    return ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net, **options)


def error_of(call):
    try:
        call()
    except (ps.PsringError, RuntimeError, TypeError, ValueError) as error:
        return str(error)
    return ""


def trained(net, optimizer, steps=2):
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(net, step).backward()
        optimizer.step()


# ---- Numbers -------------------------------------------------------------------


def keep_gradients():
    """Two losses whose gradients a script keeps, beside their means over the ranks."""
    ps.init()
    net = model()
    optimizer = distributed(net)
    kept = []
    for step in range(3):
        optimizer.zero_grad(set_to_none=True)  # torch 1.13 zeroes what is kept
        loss_of(net, step).backward()
        kept.append([p.grad for p in net.parameters()])
    wanted = []
    for step in range(3):
        plain = torch.autograd.grad((loss_of(net, step, 0) + loss_of(net, step, 1)) / 2, list(net.parameters()))
        wanted.append(plain)
    return all(torch.allclose(a, b) for x, y in zip(kept, wanted) for a, b in zip(x, y))


def keep_gradients_of_one_memory(accumulate):
    """What a script holds from the first step on is p.grad for ever, where that is not set to None."""
    ps.init()
    net = model()
    optimizer = distributed(net)
    loss_of(net, 0).backward()
    held = [p.grad for p in net.parameters()]
    same = []
    for step in range(1, 4):
        if not accumulate:
            optimizer.zero_grad(set_to_none=False)
        loss_of(net, step).backward()
        same += [torch.equal(a, p.grad) for a, p in zip(held, net.parameters())]
    return all(same)


@pytest.mark.parametrize("accumulate", [False, True])
def test_gradients_that_stay_in_place_are_p_grad(accumulate):
    assert run(keep_gradients_of_one_memory, args=(accumulate,)) == [True, True]


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_gradients_that_a_script_keeps_stay_as_they_were(mode):
    assert run(keep_gradients, mode=mode) == [True, True]


def compare_all_rows():
    """Each rank computes a loss of all ranks' rows, as CLIP does. How far it ends from torch's on all rows."""
    ps.init()
    net, alone = model(), model()
    optimizer = distributed(net)
    plain = torch.optim.SGD(alone.parameters(), lr=0.1)

    def loss(rows):
        return torch.nn.functional.cross_entropy(rows @ rows.t(), torch.arange(len(rows)))

    for step in range(3):
        inputs = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        rows = ps.allgather(net(inputs[ps.rank()]))
        rows.register_hook(lambda grad: grad * ps.size())
        loss(rows).backward()
        optimizer.step()
        plain.zero_grad()
        loss(alone(inputs.reshape(10, 4))).backward()
        plain.step()
    return max((a - b).abs().max().item() for a, b in zip(net.parameters(), alone.parameters()))


def test_a_loss_of_all_ranks_rows_trains_as_in_one_process():
    assert max(run(compare_all_rows)) < 1e-5


def write_through_data(update):
    ps.init()
    net = model()
    optimizer = distributed(net, update=update)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            trained(net, optimizer, 1)
            for p in net.parameters():
                p.data.clamp_(-0.05, 0.05)
    return [str(w.message) for w in caught if "was written to after a step" in str(w.message)]


def test_a_write_through_p_data_is_told_where_it_is_lost():
    assert run(write_through_data, mode="ps", args=("local",)) == [[], []]
    for told in run(write_through_data, mode="ps", args=("fused",)):
        assert len(told) == 1


def change_a_large_buffer(update):
    """How often it travels in each step, and what it is after that."""
    from psring.torch import buffers

    travels = []
    broadcast = buffers.broadcast_
    buffers.broadcast_ = lambda *arguments: (travels.append(step), broadcast(*arguments))
    step = -1
    ps.init()
    net = model()
    net.register_buffer("table", torch.zeros(1 << 18))
    optimizer = distributed(net, update=update)
    seen = []
    for step in range(6):
        if step == 2 and ps.rank() == 1:
            net.table[5] = 1  # stays on no rank
        if step == 4 and ps.rank() == 0:
            net.table[7] = 1  # reaches all
        trained(net, optimizer, 1)
        seen.append((net.table[5].item(), net.table[7].item()))
    buffers.broadcast_ = broadcast
    return travels, seen


@UPDATES
def test_a_large_buffer_travels_where_it_has_changed_alone(update):
    for travels, seen in run(change_a_large_buffer, args=(update,)):
        assert [step for step in travels if step >= 0] == [2, 4]
        assert seen == [(0, 0)] * 4 + [(0, 1)] * 2


# ---- Ranks that part -----------------------------------------------------------


def skip_a_step():
    ps.init()
    net = model()
    optimizer = distributed(net)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(net, step).backward()
        if step != 1 or ps.rank() != 1:
            optimizer.step()


def other_rates(kind):
    ps.init()
    net = model()
    rate = 0.1 * (1 + ps.rank())
    if kind == "tensor":
        optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(rate))
    elif kind == "numpy":
        import numpy

        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        optimizer.param_groups[0]["lr"] = numpy.float32(rate)
    else:
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1, eps=1e-8 * (1 + ps.rank()))
    trained(net, ps.DistributedOptimizer(optimizer, model=net))


def leave_out_steps_while_another_has_joined():
    """Accumulates by hand over batches of which rank 0 has more, in two epochs."""
    ps.init()
    net = model()
    optimizer = distributed(net)
    for _ in range(2):
        for batch in range(7 if ps.rank() == 0 else 5):
            loss_of(net, batch).backward()
            if batch % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
        optimizer.zero_grad()
        ps.broadcast_parameters(net.state_dict(), root_rank=ps.join())
    return True


def test_what_is_left_out_while_another_has_joined_is_no_error():
    assert run(leave_out_steps_while_another_has_joined) == [True, True]


def train_what_has_changed(how, update):
    """No trainable parameter, from the beginning or later, or ones of another dtype than when the optimizer was made."""
    ps.init()
    net = model()
    if how == "frozen":
        net.requires_grad_(False)
    optimizer = distributed(net, update=update)
    if how == "frozen later":
        trained(net, optimizer)
        net.requires_grad_(False)
        optimizer.load_state_dict(optimizer.state_dict())
    if how == "double":
        net.double()
    for _ in range(3):
        optimizer.zero_grad()
        if how == "double":
            net(torch.ones(5, 4, dtype=torch.float64)).sum().backward()
        optimizer.step()
    optimizer.synchronize_parameters()
    optimizer.close()
    return True


@pytest.mark.parametrize("how, update", [
    ("frozen", "local"), ("double", "local"), ("frozen", "fused"), ("frozen later", "fused")
])  # fmt: skip
def test_a_model_may_have_nothing_to_train_or_another_dtype(how, update):
    assert run(train_what_has_changed, args=(how, update)) == [True, True]


class Growing(torch.nn.Module):
    """With a cache of positions, as language models have it."""

    def __init__(self):
        super().__init__()
        self.inner = model()
        self.register_buffer("cache", torch.zeros(8), persistent=False)

    def forward(self, x):
        return self.inner(x)


def grow_a_buffer(broadcast_buffers):
    ps.init()
    net = Growing()
    optimizer = distributed(net, broadcast_buffers=broadcast_buffers)
    trained(net, optimizer)
    if ps.rank() == 1:
        net.register_buffer("cache", torch.zeros(20), persistent=False)
    trained(net, optimizer)
    return True


def told_by_both(function, *args):
    return run(catches, args=(function.__name__, *args))


def catches(name, *args):
    return error_of(lambda: globals()[name](*args))


def test_a_step_that_one_rank_skips_is_told():
    for error in told_by_both(skip_a_step):
        assert "left out step() after different numbers of backward(): 0 on rank 0, 1 on rank 1" in error


@pytest.mark.parametrize("kind, told", [("tensor", "lr="), ("numpy", "lr="), ("eps", "eps=")])
def test_other_numbers_of_an_optimizer_are_told(kind, told):
    for error in told_by_both(other_rates, kind):
        assert "ranks 0 and 1 differ: " + told in error


def test_a_buffer_that_grows_on_one_rank_is_named_with_the_remedy():
    for error in told_by_both(grow_a_buffer, True):
        assert "buffer 0, cache float32[8] on rank 0, buffer 0, cache float32[20] on rank 1" in error
        assert "broadcast_buffers=False" in error
    assert run(grow_a_buffer, args=(False,)) == [True, True]


def put_right_what_differed(what, update, before):
    """What the step says in which it differs, and where two more end."""
    ps.init()
    net = Growing()
    optimizer = distributed(net, update=update)
    trained(net, optimizer, before)
    if what == "lr":
        optimizer.param_groups[0]["lr"] = 0.1 * (1 + ps.rank())
    else:
        net.cache = torch.zeros(8 + ps.rank())
    said = error_of(lambda: trained(net, optimizer, 1))
    optimizer.param_groups[0]["lr"], net.cache = 0.1, torch.zeros(8)
    trained(net, optimizer)
    return said, weights(net).tolist()


def weights(net):
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def undisturbed(steps):
    """Where plain torch ends: each step 0, and then the two of trained()."""
    net = model()
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in [0] * steps + [0, 1]:
        plain.zero_grad()
        ((loss_of(net, step, 0) + loss_of(net, step, 1)) / 2).backward()
        plain.step()
    return weights(net)


@pytest.mark.parametrize("what, update, before, made, told", [
    ("lr", "local", 1, 1, "lr=0.1 of param_groups[0] on rank 0, lr=0.2"),
    ("buffer", "local", 1, 1, "buffer 0, cache float32[8] on rank 0"),
    ("buffer", "local", 0, 0, ""),
    ("buffer", "fused", 1, 2, "buffers"),
])  # fmt: skip
def test_what_is_put_right_after_an_error_trains_on(what, update, before, made, told):
    first, second = run(put_right_what_differed, args=(what, update, before))
    assert first == second
    assert first[0] and told in first[0]
    assert torch.allclose(torch.tensor(first[1]), undisturbed(made), atol=1e-6)


def load_on_one_rank(update):
    ps.init()
    net = model()
    optimizer = distributed(net, update=update)
    if ps.rank() == 0:
        torch.nn.init.ones_(net[0].weight)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained(net, optimizer)
    return [(str(w.message), os.path.basename(w.filename)) for w in caught if "are not those of rank 0" in str(w.message)]


def test_parameters_that_differ_in_the_first_step_are_told():
    first, second = run(load_on_one_rank, args=("local",))
    assert first == []
    [(message, file)] = second
    assert "broadcast_parameters" in message
    assert file == os.path.basename(__file__)  # not one of psring's
    assert run(load_on_one_rank, args=("fused",)) == [[], []]


def norms_of_torchs_own(converted):
    ps.init()
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.SyncBatchNorm(3))
    if converted:
        net = ps.SyncBatchNorm.convert_sync_batchnorm(net)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
    return [str(w.message) for w in caught if "SyncBatchNorm" in str(w.message)]


def test_a_sync_batch_norm_of_torchs_own_is_told_with_the_way():
    for [message] in run(norms_of_torchs_own, args=(False,)):
        assert "each worker's own mean and variance" in message
        assert "psring.torch.SyncBatchNorm.convert_sync_batchnorm(model)" in message
    assert run(norms_of_torchs_own, args=(True,)) == [[], []]
    assert run(norms_of_torchs_own, args=(False,), size=1) == [[]]


def restore_weights():
    """As the warning of a write says."""
    ps.init()
    net = model()
    optimizer = distributed(net, update="fused")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained(net, optimizer)
        for p in net.parameters():
            p.data.fill_(0.1)
        optimizer.load_state_dict(optimizer.state_dict())
        trained(net, optimizer)
    return [str(w.message) for w in caught if "was written to" in str(w.message)]


def test_the_way_to_go_on_from_written_parameters_is_no_write():
    assert run(restore_weights, mode="ps") == [[], []]


def go_on_from_written_parameters(sync):
    ps.init()
    net = model()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)  # a state comes from the servers
    optimizer = ps.DistributedOptimizer(sgd, model=net, update="fused", sync=sync)
    trained(net, optimizer)
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(5.0)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    (0 * loss_of(net, 0)).backward()  # the momentum alone moves them
    optimizer.step()
    optimizer.synchronize_parameters()
    return min(p.min().item() for p in net.parameters())


@pytest.mark.parametrize("sync", ["bsp", "ssp:1", "async"])
def test_written_parameters_stay_where_training_goes_on_from_them(sync):
    assert min(run(go_on_from_written_parameters, mode="ps", args=(sync,))) > 4.0


def perturb_in_no_sync():
    """SAM: each rank's own perturbation, which ends before step()."""
    ps.init()
    net = model()
    optimizer = distributed(net)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(2):
            optimizer.zero_grad()
            with optimizer.no_sync():
                loss_of(net, step).backward()
            moves = [0.05 * p.grad for p in net.parameters()]
            with torch.no_grad():
                for p, move in zip(net.parameters(), moves):
                    p.add_(move)
            optimizer.zero_grad()
            loss_of(net, step).backward()
            with torch.no_grad():
                for p, move in zip(net.parameters(), moves):
                    p.sub_(move)
            optimizer.step()
    return [str(w.message) for w in caught]


def test_a_perturbation_of_each_rank_for_a_while_is_not_told():
    assert run(perturb_in_no_sync) == [[], []]


# ---- Around the optimizer ------------------------------------------------------


def unfreeze(how):
    ps.init()
    net = model()
    if how != "append":
        net[0].requires_grad_(False)
    optimizer = distributed(net)
    trained(net, optimizer)
    if how == "close":
        optimizer.close()
        net[0].requires_grad_(True)
        optimizer = ps.DistributedOptimizer(optimizer, model=net)
    elif how == "append":
        optimizer.param_groups[0]["params"].append(torch.nn.Parameter(torch.zeros(2)))
    else:
        net[0].requires_grad_(True)
    trained(net, optimizer)


def test_parameters_that_need_gradients_later_are_told_the_way():
    for error in told_by_both(unfreeze, "in place"):
        assert "0.weight did not need a gradient" in error and "opt.close() on all workers" in error
    for error in told_by_both(unfreeze, "append"):
        assert "was not in param_groups when DistributedOptimizer was made, and now is" in error
    assert told_by_both(unfreeze, "close") == ["", ""]


def state_while_a_part_is_frozen(update):
    """Which parameters have a state in a checkpoint of that time, and in the plain optimizer after it."""
    ps.init()
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    trained(net, optimizer)
    net[0].requires_grad_(False)
    ps.DistributedOptimizer(optimizer, model=net, update=update)
    trained(net, optimizer)
    saved = optimizer.state_dict()["state"]
    optimizer.close()
    return sorted(saved), [int(optimizer.state[p]["step"]) for p in net.parameters()]


@UPDATES
def test_a_frozen_parameter_keeps_its_state(update):
    assert run(state_while_a_part_is_frozen, args=(update,)) == [([0, 1, 2, 3], [2, 2, 4, 4])] * 2


def load_a_state_of_another_shape(update):
    ps.init()
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    trained(net, optimizer)
    state = optimizer.state_dict()
    state["state"][0]["exp_avg"] = state["state"][0]["exp_avg"].t().contiguous()
    optimizer.load_state_dict(state)
    trained(net, ps.DistributedOptimizer(optimizer, model=net, update=update))


def test_a_state_of_another_shape_is_an_error():
    assert all("must match" in error for error in told_by_both(load_a_state_of_another_shape, "local"))  # torch's own
    for error in told_by_both(load_a_state_of_another_shape, "fused"):
        assert "the optimizer's state has exp_avg of shape [4, 8] for 0.weight, which is [8, 4]" in error


def step_in_backward(update, hooks_first):
    """An optimizer for each parameter, which makes its step as soon as the gradient is there. How far it ends from
    torch's on both ranks' data."""
    ps.init()
    net, alone = model(), model()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in net.parameters()}

    def hook(param):
        optimizers[param].step()
        optimizers[param].zero_grad()

    def register():
        return [param.register_post_accumulate_grad_hook(hook) for param in net.parameters()]

    if hooks_first:
        register()
    for optimizer in optimizers.values():
        ps.DistributedOptimizer(optimizer, update=update)
    if not hooks_first:
        register()
    plain = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(3):
        loss_of(net, step).backward()
        plain.zero_grad()
        ((loss_of(alone, step, 0) + loss_of(alone, step, 1)) / 2).backward()
        plain.step()
    return max((a - b).abs().max().item() for a, b in zip(net.parameters(), alone.parameters()))


@pytest.mark.skipif(
    not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"), reason="such a hook is of torch 2.1 and newer"
)
@UPDATES
def test_a_step_within_backward_comes_after_psrings_hook(update):
    assert max(run(step_in_backward, args=(update, False))) < 1e-6
    for error in told_by_both(step_in_backward, update, True):
        assert "step() ran within backward() before psring had the gradient of group0.parameter0" in error
        assert "register the hook that calls step() after DistributedOptimizer is made" in error


class Scaled(torch.optim.SGD):
    """Its step() takes more than a closure, as apex's and fairseq's do."""

    def step(self, closure=None, scale=1.0, *, loss=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad /= scale
        return super().step(closure), loss


def step_with_arguments():
    ps.init()
    net, alone = model(), model()
    optimizer = ps.DistributedOptimizer(Scaled(net.parameters(), lr=0.1), model=net)
    (4 * loss_of(net, 0)).backward()
    result = optimizer.step(scale=4.0, loss=2.0)
    ((loss_of(alone, 0, 0) + loss_of(alone, 0, 1)) / 2).backward()
    torch.optim.SGD(alone.parameters(), lr=0.1).step()
    return result, all(torch.allclose(a, b) for a, b in zip(net.parameters(), alone.parameters()))


def test_step_takes_the_arguments_of_the_optimizers_own():
    assert run(step_with_arguments) == [((None, 2.0), True)] * 2


def fail_to_wrap(update):
    """A parameter that needs no gradient has another shape on each rank, which is found last."""
    ps.init()
    net = model()
    net.scale = torch.nn.Parameter(torch.ones(2 + ps.rank()), requires_grad=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    said = error_of(lambda: ps.DistributedOptimizer(optimizer, model=net, update=update))
    trains = [p for p in net.parameters() if p.requires_grad]
    wanted = torch.autograd.grad(loss_of(net, 0), trains)
    loss_of(net, 0).backward()
    own = all(torch.equal(p.grad, grad) for p, grad in zip(trains, wanted))
    net.scale.data = torch.ones(2)
    trained(net, ps.DistributedOptimizer(optimizer, model=net, update=update))
    return said, type(optimizer).__name__, own


@UPDATES
def test_an_optimizer_that_was_not_distributed_stays_a_plain_one(update):
    for said, kind, own in run(fail_to_wrap, args=(update,)):
        assert "scale float32[2] on rank 0" in said and own and kind == "DistributedSGD"


@UPDATES
def test_a_scheduler_goes_on_over_another_distributed_optimizer(update):
    assert run(schedule_twice, args=(update,)) == [0.1 * 0.5**4] * 2


def schedule_twice(update):
    ps.init()
    net = model()
    optimizer = distributed(net, update=update)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for again in (True, False):
        for _ in range(2):
            trained(net, optimizer, 1)
            scheduler.step()
        if again:
            optimizer.close()
            optimizer = ps.DistributedOptimizer(optimizer, model=net, update=update)
    return optimizer.param_groups[0]["lr"]


class AbstractSGD(abc.ABC, torch.optim.SGD):
    """Whose first base decides the layout of its objects, as that of pytorch_optimizer's does."""


def distribute_a_class_of_another_layout():
    ps.init()
    net, same = model(), model()
    optimizer = AbstractSGD(net.parameters(), lr=0.1, momentum=0.9)
    trained(net, ps.DistributedOptimizer(optimizer, model=net))
    trained(same, ps.DistributedOptimizer(torch.optim.SGD(same.parameters(), lr=0.1, momentum=0.9), model=same))
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.close()
    outside = ps.DistributedOptimizer(AbstractSGD(model().parameters(), lr=0.1), process_set=ps.add_process_set([0]))
    outside.close()
    equal = all(torch.equal(a, b) for a, b in zip(net.parameters(), same.parameters()))
    return equal, type(optimizer) is type(outside) is AbstractSGD


def test_an_optimizer_whose_first_base_is_another_class_trains():
    assert run(distribute_a_class_of_another_layout) == [(True, True)] * 2


def close_outside_of_the_set():
    ps.init()
    net = model()
    alone = ps.add_process_set([0])
    optimizer = distributed(net, process_set=alone)
    twice = error_of(lambda: ps.DistributedOptimizer(optimizer, model=net, process_set=alone))
    optimizer.close()
    kind = type(optimizer).__name__
    trained(net, ps.DistributedOptimizer(optimizer, model=net))
    return kind, twice


def test_close_makes_a_plain_optimizer_on_ranks_outside_of_the_set_too():
    for kind, twice in run(close_outside_of_the_set):
        assert kind == "SGD" and "is a DistributedOptimizer already" in twice


def average_a_dict():
    ps.init()
    return error_of(lambda: ps.mean({"loss": 1.0})), error_of(lambda: ps.sum([1.0, 2.0]))


def test_a_mean_of_several_values_is_refused_with_the_way():
    for of_dict, of_list in run(average_a_dict):
        assert "not dict: call them for each value" in of_dict and "not list" in of_list


def join_in_a_child():
    ps.init()
    code = "import psring; psring.init()"
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    child = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    return child.returncode, child.stderr


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="needs the real library: set PSRING_LIBRARY")
def test_a_child_of_a_worker_does_not_join_in_its_place():
    for code, said in run(join_in_a_child):
        assert code == 1 and 'under `if __name__ == "__main__":`' in said and "has joined the job already" in said


def train_compiled(update):
    """Parameters of the model as it is, and compiled in several ways."""
    import torch._dynamo

    ps.init()

    def parameters(backend, compiled_first):
        torch._dynamo.reset()
        net = ps.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(model(), torch.nn.BatchNorm1d(3)))
        call = torch.compile(net, backend=backend) if backend else net
        optimizer = distributed(call if compiled_first else net, update=update, bucket_mb=0.0001)
        trained(call, optimizer, steps=4)
        optimizer.close()
        return [p.detach().clone() for p in net.parameters()]

    plain = parameters(None, False)
    with torch._dynamo.config.patch(error_on_recompile=True):  # in a step that is as the one before
        ways = [parameters(backend, first) for backend in ("eager", "aot_eager") for first in (False, True)]
    return [all(map(torch.equal, plain, way)) for way in ways]


@UPDATES
@pytest.mark.skipif(not hasattr(torch, "compiler"), reason="torch 2.1 has what keeps a function as it is")
def test_a_compiled_model_trains_as_the_model_itself(update):
    assert run(train_compiled, args=(update,), timeout=200) == [[True] * 4] * 2


def convert(update, passes):
    """What is said where the model becomes another dtype, and whether it trains on where it is converted back."""
    ps.init()
    net = model()
    optimizer = distributed(net, update=update, backward_passes_per_step=passes)
    said = []

    def attempt(dtype):
        optimizer.zero_grad()
        for _ in range(passes):
            net(torch.ones(5, 4, dtype=dtype)).square().mean().backward()
        optimizer.step()

    for dtype in (torch.bfloat16, torch.float64, torch.float16):
        net.to(dtype)
        said.append(error_of(lambda: attempt(dtype)))
    before = net.bfloat16()[2].weight.detach().clone()
    attempt(torch.bfloat16)
    return said, not torch.equal(before, net[2].weight)


@pytest.mark.parametrize("passes", [1, 2])
@UPDATES
def test_a_model_that_is_converted_after_the_first_step_is_refused(update, passes):
    for (first, *late), trains in run(convert, args=(update, passes)):
        assert first == "" and trains
        for said, dtype in zip(late, ("float64", "float16")):
            assert f".weight was torch.bfloat16 in the first step, and is torch.{dtype} now" in said
            assert "before DistributedOptimizer is made" in said


def backward_for_parts(options):
    ps.init()
    net = model()
    optimizer = distributed(net, **options)
    said = []
    for step in range(2):
        optimizer.zero_grad()
        for layer in (net[0], net[2]):
            said.append(error_of(lambda: loss_of(net, step).backward(inputs=list(layer.parameters()))))
        if any(said):
            return said[-1]
        optimizer.step()
    return [p.detach().clone() for p in net.parameters()]


def test_a_backward_for_each_part_of_a_model_trains_or_says_how():
    remedies = [{"update": "local"}, {"update": "fused", "overlap": False}]
    (plain, *_), (deferred, *_) = [run(backward_for_parts, args=(options,)) for options in remedies]
    assert all(map(torch.allclose, plain, deferred))
    for said in run(backward_for_parts, args=({"update": "fused"},)):
        assert "backward(inputs=...)" in said and "overlap=False" in said and 'use update="local"' in said


def swap(update):
    """What a model trains to whose parameters are swapped when its optimizer is made, and later, and what is said
    where psring misses a gradient."""
    import gc

    ps.init()

    def parameters(swaps):
        net = model()
        optimizer = distributed(net, update=update)
        torch.__future__.set_swap_module_params_on_conversion(swaps)
        try:
            out = []
            for step in range(4):
                if step in (0, 2):
                    net.load_state_dict({name: value / 2 for name, value in net.state_dict().items()})
                    if update == "fused" and step == 2:
                        optimizer.load_state_dict(optimizer.state_dict())
                optimizer.zero_grad()
                if step == 3:
                    net.to("cpu")
                    optimizer.zero_grad()
                loss_of(net, step).backward()
                out.append([p.grad.clone() for p in net.parameters()])
                optimizer.step()
            optimizer.zero_grad()
            net.load_state_dict(net.state_dict())
            loss_of(net, step).backward()
            said = error_of(optimizer.step)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)
        kept = list(net.parameters())
        del optimizer
        gc.collect()
        return out, kept, said

    (plain, _, _), (swapped, kept, said) = parameters(False), parameters(True)
    values = [p.detach().clone() for p in kept]
    ps.shutdown()  # the library's memory goes
    same = all(torch.equal(a, b) for ours, theirs in zip(plain, swapped) for a, b in zip(ours, theirs))
    return same, said, all(map(torch.equal, kept, values))


@UPDATES
@pytest.mark.skipif(not hasattr(torch.utils, "swap_tensors"), reason="torch 2.3 swaps")
def test_a_model_whose_parameters_are_swapped_trains(update):
    for same, said, kept in run(swap, args=(update,)):
        assert same and kept
        assert ("call opt.zero_grad() between the swap and backward()" in said) == (update == "local")
