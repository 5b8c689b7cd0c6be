"""DistributedOptimizer on two ranks against plain torch on both batches at once."""

import copy
import ctypes
import gc
import os
import subprocess
import sys
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F

import psring.torch as ps
from psring.torch.gradient_exchange import same_numbers
from ranks import PYTHONPATH, free_port, models_in_memory, run

SCENARIOS = {}
STEPS = 4


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def batch(step, rank, passes=1):
    g = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(5, 4, generator=g), torch.randint(3, (5,), generator=g)


def loss_of(net, step, rank):
    x, y = batch(step, rank)
    return F.cross_entropy(net(x), y)


def weights(net):
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()]).clone()


def reference(make, clip=None, schedule=None, ranks=2, steps=STEPS):
    """What both ranks must end with: steps on the mean of their losses."""
    net = model()
    opt = make(net)
    scheduler = schedule(opt) if schedule else None
    for step in range(steps):
        opt.zero_grad()
        sum(loss_of(net, step, r) for r in range(ranks)).div(ranks).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        opt.step()
        if scheduler:
            scheduler.step()
    return weights(net)


def same(net, expected, tolerance=2e-6):
    return torch.allclose(weights(net), expected, atol=tolerance)


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def adam(net):
    return torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=0.1)


def train_alone(opt, loss, steps=STEPS):
    """Without psring. loss(step): of all ranks together."""
    for step in range(steps):
        opt.zero_grad()
        loss(step).backward()
        opt.step()


def train(net, opt, steps=STEPS, **zero):
    for step in range(steps):
        opt.zero_grad(**zero)
        loss_of(net, step, ps.rank()).backward()
        opt.step()


@scenario
def local_is_exact():
    out = []
    for make in (sgd, adam, lambda net: torch.optim.Adagrad(net.parameters(), lr=0.1)):
        for zero in ({}, {"set_to_none": False}):
            for mb in (25, 0.0001):
                net = model()
                opt = ps.DistributedOptimizer(make(net), model=net, bucket_mb=mb)
                train(net, opt, **zero)
                out.append(same(net, reference(make)))
    return out


@scenario
def fused_is_exact():
    out = []
    for make in (
        sgd,
        adam,
        lambda net: torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.01),
        lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True),
        lambda net: torch.optim.AdamW(net.parameters(), lr=0.01),
        in_one_pass,
        lambda net: torch.optim.SGD(
            [{"params": net[0].parameters(), "lr": 0.3}, {"params": net[2].parameters()}], lr=0.1
        ),
    ):
        net = model()
        opt = ps.DistributedOptimizer(make(net), model=net, update="fused", bucket_mb=0.0001)
        train(net, opt)
        out.append(same(net, reference(make)))
    return out


@scenario
def schedulers_before_and_after():
    def schedule(opt):
        return torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)

    out = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for update in ("local", "fused"):
            for before in (True, False):
                net = model()
                opt = sgd(net)
                scheduler = schedule(opt) if before else None
                wrapped = ps.DistributedOptimizer(opt, model=net, update=update)
                scheduler = scheduler or schedule(opt)
                for step in range(STEPS):
                    opt.zero_grad()
                    loss_of(net, step, ps.rank()).backward()
                    opt.step()
                    scheduler.step()
                out.append(wrapped is opt and isinstance(opt, torch.optim.SGD))
                out.append(same(net, reference(sgd, schedule=schedule)))
    return out


@scenario
def clipping():
    out = []
    for horovod in (False, True):
        net = model()
        opt = ps.DistributedOptimizer(sgd(net), named_parameters=net.named_parameters())
        for step in range(STEPS):
            opt.zero_grad()
            loss_of(net, step, ps.rank()).backward()
            if horovod:
                opt.synchronize()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                with opt.skip_synchronize():
                    opt.step()
            else:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                opt.step()
        out.append(same(net, reference(sgd, clip=0.1)))
    return out


@scenario
def accumulation():
    """Two passes a step: their sum over passes, their mean over ranks."""
    expected = model()
    plain = sgd(expected)
    for step in range(0, STEPS, 2):
        plain.zero_grad()
        for r in range(2):
            for s in (step, step + 1):
                (loss_of(expected, s, r) / 2).backward()
        plain.step()
    out = []
    for how in ("passes", "no_sync", "twice", "passes fused", "no_sync fused"):
        net = model()
        opt = ps.DistributedOptimizer(
            sgd(net), model=net, backward_passes_per_step=2 if "passes" in how else 1,
            update="fused" if "fused" in how else "local",
        )  # fmt: skip
        for step in range(0, STEPS, 2):
            opt.zero_grad()
            if "no_sync" in how:
                with opt.no_sync():
                    loss_of(net, step, ps.rank()).backward()
            else:
                loss_of(net, step, ps.rank()).backward()
            loss_of(net, step + 1, ps.rank()).backward()
            opt.step()
        out.append(same(net, weights(expected)))
    return out


@scenario
def sums():
    expected = model()
    train_alone(sgd(expected), lambda step: sum(loss_of(expected, step, r) for r in range(2)))
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net, op=ps.Sum)
    train(net, opt)
    net2 = model()
    opt2 = ps.DistributedOptimizer(sgd(net2), model=net2, gradient_predivide_factor=4.0)
    train(net2, opt2)
    return [same(net, weights(expected), 1e-5), same(net2, reference(sgd))]


def loss_in(dtype, net, step, rank):
    x, y = batch(step, rank)
    return F.cross_entropy(net(x.to(dtype)), y)


@scenario
def sums_after_steps_that_are_skipped():
    """By a GradScaler, or by the script; and the sums that stay are not summed again."""
    out = []
    for dtype in (torch.float32, torch.bfloat16):
        for how in ("scaler", "opt", "opt in place", "model"):
            if dtype != torch.float32 and how == "scaler":
                continue
            net = model().to(dtype)
            opt = ps.DistributedOptimizer(sgd(net), model=net, op=ps.Sum)
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
            for step in (-1, 0, 1):
                loss = loss_in(dtype, net, max(step, 0), ps.rank())
                if how == "scaler":
                    scaler.scale(loss * (float("nan") if step < 0 else 1.0)).backward()
                    scaler.step(opt)
                    scaler.update()
                else:
                    loss.backward()
                    if step >= 0:
                        opt.step()
                if how == "model":
                    net.zero_grad()
                else:
                    opt.zero_grad(set_to_none=how != "opt in place")
            expected = model().to(dtype)
            train_alone(sgd(expected), lambda step: sum(loss_in(dtype, expected, step, r) for r in range(2)), steps=2)
            out.append(same(net, weights(expected), 1e-5 if dtype == torch.float32 else 0.02))
        loss_in(dtype, net, 0, 0).backward()
        out.append("sum what is already a sum" in message(lambda: loss_in(dtype, net, 0, 0).backward()))
    return out


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b, self.c = (torch.nn.Linear(2, 2) for _ in range(3))

    def forward(self, x, which):
        return (self.a if which == 0 else self.b)(x).sum()


@scenario
def unused_parameters():
    net = Branches()
    opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0), model=net)
    x = torch.ones(1, 2)
    out = []
    for step in range(3):
        opt.zero_grad()
        net(x, (ps.rank() + step) % 2).backward()
        out.append([net.a.bias.grad.tolist(), net.b.bias.grad.tolist(), net.c.bias.grad.tolist()])
        opt.step()
    net = Branches()
    opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0), model=net, find_unused=True)
    opt.zero_grad()
    net(x, ps.rank()).backward()
    return out, net.a.bias.grad.tolist(), net.c.bias.grad is None


@scenario
def frozen_on_the_way():
    """As with torch alone, neither momentum nor weight decay moves it."""
    out = []
    for kind in (sgd, lambda net: torch.optim.AdamW(net.parameters(), lr=0.1)):
        net = model()
        opt = ps.DistributedOptimizer(kind(net), model=net)
        for step in range(STEPS):
            if step == 1:
                frozen = next(net.parameters()).requires_grad_(False)
                before = frozen.clone()
            opt.zero_grad()
            loss_of(net, step, ps.rank()).backward()
            opt.step()
        out += [torch.equal(frozen, before), frozen.grad is None]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net = model()
        opt = ps.DistributedOptimizer(sgd(net), model=net, update="fused")
        for step in range(2):
            loss_of(net, step, ps.rank()).backward()
            opt.step()
            next(net.parameters()).requires_grad_(False)
    out.append(any("has been frozen" in str(warning.message) for warning in caught))
    return out


@scenario
def grad_scaler():
    out = []
    for update in ("local", "fused"):
        net = model()
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
        opt = ps.DistributedOptimizer(sgd(net), model=net, update=update, scaler=scaler if update == "fused" else None)
        for step in range(STEPS + 1):
            opt.zero_grad()
            loss = scaler.scale(loss_of(net, min(step, STEPS - 1), ps.rank()))
            if step == STEPS:  # one rank overflows: all skip
                loss = loss * (float("inf") if ps.rank() == 1 else 1.0)
            loss.backward()
            scaler.step(opt)
            scaler.update()
        out += [same(net, reference(sgd)), scaler.get_scale() == 512.0]
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net, update="fused")
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(net, 0, ps.rank())).backward()
    try:
        scaler.step(opt)
    except ValueError as error:
        out.append("pass scaler=" in str(error))
    return out


@scenario
def sparse():
    def make():
        torch.manual_seed(2)
        return torch.nn.Sequential(torch.nn.Embedding(6, 3, sparse=True), torch.nn.Flatten(), torch.nn.Linear(6, 2))

    def forward(net, step, rank):
        return net(torch.tensor([[rank + step, 2 * rank]])).pow(2).sum()

    expected = make()
    plain = torch.optim.SGD(expected.parameters(), lr=0.1)
    train_alone(plain, lambda step: sum(forward(expected, step, r) for r in range(2)) / 2, steps=3)
    out = []
    for dense in (False, True):
        net = make()
        opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net, sparse_as_dense=dense)
        for step in range(3):
            opt.zero_grad()
            forward(net, step, ps.rank()).backward()
            out.append(net[0].weight.grad.is_sparse != dense)
            opt.step()
        out.append(same(net, weights(expected)))
    return out


@scenario
def halves():
    out = []
    for dtype in (torch.bfloat16, torch.float16):
        net = model().to(dtype)
        opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
        x, _ = batch(0, ps.rank())
        net(x.to(dtype)).sum().backward()
        out.append(net[0].weight.grad.dtype == dtype)
        everybody = ps.allgather(net[0].weight.grad.reshape(1, -1))
        out.append(torch.equal(everybody[0], everybody[1]))
        opt.step()
    for other, remedy in (
        (model().double(), "model.float()"), (model().to(torch.complex64), "view_as_real"), (model().to("meta"), "to_empty"),
    ):  # fmt: skip
        try:
            ps.DistributedOptimizer(sgd(other), model=other)
        except TypeError as error:
            out.append("0.weight is" in str(error) and remedy in str(error))
        else:
            out.append(False)
    return out


def convolutions():
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Tanh(), torch.nn.Conv2d(4, 2, (3, 1)))
    return net.to(memory_format=torch.channels_last)


def images(step, rank):
    g = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(2, 3, 6, 6, generator=g).contiguous(memory_format=torch.channels_last)


def in_one_pass(net):
    """torch's own fused Adam, which walks the memory of parameters, gradients and state alike."""
    try:
        return torch.optim.Adam(net.parameters(), lr=0.01, fused=True)
    except RuntimeError:  # on CPUs since torch 2.4
        return torch.optim.Adam(net.parameters(), lr=0.01)


def strides(tensors):
    return [tensor.stride() for tensor in tensors]


@scenario
def gradients_lie_as_their_parameters():
    expected = convolutions()
    train_alone(
        in_one_pass(expected), lambda step: sum(expected(images(step, r)).square().mean() for r in range(2)).div(2)
    )
    out = []
    for dtype in (torch.float32, torch.bfloat16):
        net = convolutions().to(dtype)
        opt = ps.DistributedOptimizer(in_one_pass(net), model=net, bucket_mb=0.0001)
        for step in range(STEPS):
            opt.zero_grad()
            net(images(step, ps.rank()).to(dtype)).square().mean().backward()
            out.append(strides(p.grad for p in net.parameters()) == strides(net.parameters()))
            opt.step()
        out.append(dtype != torch.float32 or same(net, weights(expected)))
    # Ranks without state get the root's, laid out alike.
    net = convolutions()
    opt = in_one_pass(net)
    if ps.rank() == 0:
        net(images(0, 0)).sum().backward()
        opt.step()
    ps.broadcast_parameters(net.state_dict())
    ps.broadcast_optimizer_state(opt)
    out.append(strides(opt.state[p]["exp_avg"] for p in net.parameters()) == strides(net.parameters()))
    # Ranks exchange memory as it lies, so it must lie alike.
    other = convolutions() if ps.rank() else convolutions().to(memory_format=torch.contiguous_format)
    for update in ("local", "fused"):
        said = message(lambda: ps.DistributedOptimizer(sgd(other), update=update))
        out.append("group0.parameter0 float32[4, 3, 3, 3] with strides [27, 1, 9, 3] on rank 1" in said)
    return out


@scenario
def fused_parameters_and_their_state_lie_as_the_models_do():
    """A model that was compiled for these strides before the first step continues with them."""
    out = []
    for dtype in (torch.float32, torch.bfloat16):
        net = convolutions().to(dtype)
        before = strides(net.parameters())
        opt = ps.DistributedOptimizer(torch.optim.Adam(net.parameters(), lr=0.01), model=net, update="fused")
        plain = convolutions().to(dtype)
        own = torch.optim.Adam(plain.parameters(), lr=0.01)

        def step(number):
            opt.zero_grad()
            net(images(number, ps.rank()).to(dtype)).square().mean().backward()
            opt.step()
            own.zero_grad()
            sum(plain(images(number, r).to(dtype)).square().mean() for r in range(2)).div(2).backward()
            own.step()

        for number in range(2):
            step(number)
        out.append(strides(net.parameters()) == before)
        state = opt.state_dict()
        of_state = [state["state"][i]["exp_avg"] for i in range(len(before))]
        out.append(strides(of_state) == before)
        if dtype == torch.float32:
            expected = [own.state[p]["exp_avg"] for p in plain.parameters()]
            out.append(all(torch.allclose(a, b, atol=1e-6) for a, b in zip(of_state, expected)))
        # The library's memory stays as it is where a script converts the model.
        net.to(memory_format=torch.contiguous_format)
        again = opt.state_dict()["state"]
        out.append(all(again[i]["exp_avg"].equal(state["state"][i]["exp_avg"]) for i in again))
        opt.load_state_dict(opt.state_dict())
        step(2)
        out.append(all(p.is_contiguous() for p in net.parameters()))
        out.append(dtype != torch.float32 or same(net, weights(plain)))
        opt.close()
    return out


@scenario
def checkpoints_of_activations():
    from torch.utils.checkpoint import checkpoint

    out = []
    for reentrant in (False, True):
        net = model()
        opt = ps.DistributedOptimizer(sgd(net), model=net)
        for step in range(STEPS):
            opt.zero_grad()
            x, y = batch(step, ps.rank())
            hidden = checkpoint(lambda t: net[1](net[0](t)), x.requires_grad_(), use_reentrant=reentrant)
            F.cross_entropy(checkpoint(net[2], hidden, use_reentrant=reentrant), y).backward()
            opt.step()
        out.append(same(net, reference(sgd)))
    return out


@scenario
def checkpoints_hold_every_gradient():
    """As with adapters: what lies around the checkpoints is frozen or unused."""
    from torch.utils.checkpoint import checkpoint

    out = []
    for passes in (1, 2):
        for unused in (False, True):
            layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
            spare = torch.nn.Linear(2, 2)
            parameters = [*layers.parameters(), *(spare.parameters() if unused else ())]
            opt = ps.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), backward_passes_per_step=passes)
            for _ in range(3):
                opt.zero_grad()
                for _ in range(passes):
                    x = torch.full((3, 4), 1.0 + ps.rank(), requires_grad=True)
                    for layer in layers:
                        x = checkpoint(layer, x, use_reentrant=True)
                    x.sum().backward()
                everybody = ps.allgather(layers[0].weight.grad.reshape(1, -1).clone())
                torch.nn.utils.clip_grad_norm_(parameters, 1e-6)
                clipped = [p.grad.clone() for p in parameters]
                opt.step()
                out.append(torch.equal(everybody[0], everybody[1]) and all(map(torch.equal, clipped, [p.grad for p in parameters])))
            opt.close()
    return out


@scenario
def other_defaults_of_torch():
    """A script's default dtype and device are for its own tensors."""
    out = []
    for dtype in (torch.float64, torch.bfloat16):
        torch.set_default_dtype(dtype)
        net = torch.nn.Linear(3, 2, dtype=torch.float32)
        opt = ps.DistributedOptimizer(torch.optim.Adam(net.parameters(), lr=0.1), model=net, update="fused")
        for _ in range(2):
            opt.zero_grad()
            net(torch.ones(1, 3, dtype=torch.float32)).sum().backward()
            opt.step()
        before = opt.state_dict()
        opt.load_state_dict(before)
        opt.zero_grad()
        net(torch.ones(1, 3, dtype=torch.float32)).sum().backward()
        opt.step()
        moments = opt.state_dict()["state"][0]["exp_avg"]
        out.append(torch.allclose(moments, 0.9 * before["state"][0]["exp_avg"] + 0.1 * torch.ones(2, 3, dtype=torch.float32)))
        opt.close()
    torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        ours = torch.full((2, 2), float(ps.rank()), device="cpu")
        out.append(ps.allgather(ours).sum().item() == 4.0)
        out.append(ps.reducescatter(ours, op=ps.Sum).sum().item() == 2.0)
        ps.broadcast_parameters([ours], root_rank=1)
    out.append(ours.sum().item() == 4.0)
    return out


@scenario
def closed_optimizers():
    """close() gives back the plain optimizer, with its state, and the memory."""
    out = []
    for update in ("local", "fused"):
        net = model()
        opt = ps.DistributedOptimizer(torch.optim.Adam(net.parameters(), lr=0.1), model=net, update=update)
        schedule = torch.optim.lr_scheduler.StepLR(opt, 1)
        for step in range(2):
            opt.zero_grad()
            loss_of(net, step, ps.rank()).backward()
            opt.step()
        out.append(len(opt.state) == (0 if update == "fused" else len(list(net.parameters()))))
        saved = opt.state_dict()["state"]
        out.append(update == "local" or not opt.state)  # the library's again
        opt.close()
        out.append(type(opt) is torch.optim.Adam and torch.equal(opt.state_dict()["state"][0]["exp_avg"], saved[0]["exp_avg"]))
        before = weights(net)
        loss_of(net, 3, ps.rank()).backward()
        opt.step()  # a step of its own
        schedule.step()
        out.append(not torch.equal(before, weights(net)))
    # Only one takes part now.
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net)
    loss_of(net, 0, ps.rank()).backward()
    opt.step()
    out.append(ps.join() in (0, 1))
    out.append("cannot be copied" in message(lambda: copy.deepcopy(opt)))
    return out


@scenario
def fused_steps_have_hooks():
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net, update="fused")
    calls = []
    opt.register_step_pre_hook(lambda *_: calls.append("before"))
    opt.register_step_post_hook(lambda *_: calls.append("after"))
    loss_of(net, 0, ps.rank()).backward()
    opt.step()
    return [calls == ["before", "after"]]


@scenario
def fused_parameters_are_written_to():
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net, update="fused")
    said = []
    for step in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            opt.zero_grad()
            loss_of(net, step, ps.rank()).backward()
            opt.step()
        said.append(any("was written to after a step" in str(w.message) for w in caught))
        if step == 1:
            with torch.no_grad():
                net[0].weight.clamp_(-0.01, 0.01)
    shared = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    shared[1].weight.data = shared[0].weight.data
    pair = torch.nn.Sequential(*shared)
    refused = message(lambda: ps.DistributedOptimizer(sgd(pair), model=pair, update="fused"))
    return [said == [False, False, True], "0.weight and 1.weight are two parameters in the same memory" in refused]


@scenario
def unusual_buffers():
    net = model()
    net.register_buffer("angles", torch.full((2,), 1j * (1 + ps.rank())))
    net.register_buffer("small", torch.full((2,), 1.0 + ps.rank()).to(torch.float8_e5m2))
    opt = ps.DistributedOptimizer(sgd(net), model=net)
    loss_of(net, 0, ps.rank()).backward()
    out = [net.angles[0].item() == 1j, net.small.float()[0].item() == 1.0]
    net.register_buffer("wide", torch.ones(1).expand(3))
    out.append("wide: the tensor is expanded" in message(lambda: ps.DistributedOptimizer(sgd(net), model=net)))
    del net.wide, net.small
    out.append("the buffer small is gone" in message(lambda: loss_of(net, 0, ps.rank()).backward()))
    opt.close()
    return out


@scenario
def closures():
    net = model()
    opt = ps.DistributedOptimizer(torch.optim.LBFGS(net.parameters(), max_iter=3), model=net)

    def closure():
        opt.zero_grad()
        loss = loss_of(net, 0, ps.rank())
        loss.backward()
        return ps.mean(loss)

    first = opt.step(closure)
    last = opt.step(closure)
    everybody = ps.allgather(weights(net).reshape(1, -1))
    return [last.item() < first.item(), torch.equal(everybody[0], everybody[1])]


@scenario
def closures_of_fused_steps():
    """As Lightning gives them: zero_grad(), forward and backward()."""
    out = []
    for make in (sgd, adam):
        net = model()
        opt = ps.DistributedOptimizer(make(net), model=net, update="fused", bucket_mb=0.0001)
        for step in range(STEPS):

            def closure():
                opt.zero_grad()
                loss = loss_of(net, step, ps.rank())
                loss.backward()
                return loss

            with torch.no_grad():
                out.append(opt.step(closure).requires_grad)
        out.append(same(net, reference(make)))
        opt.close()
    return out


@scenario
def state():
    out = []
    # Horovod's two calls, with state on rank 0 alone.
    torch.manual_seed(ps.rank())
    net = torch.nn.Linear(3, 2)
    opt = torch.optim.Adam(net.parameters(), lr=0.1 * (ps.rank() + 1))
    if ps.rank() == 0:
        net(torch.ones(1, 3)).sum().backward()
        opt.step()
    before = weights(net)
    ps.broadcast_parameters(net.state_dict(), root_rank=0)
    ps.broadcast_optimizer_state(opt, root_rank=0)
    out.append(ps.rank() == 1 or torch.equal(before, weights(net)))
    out.append(opt.param_groups[0]["lr"] == 0.1 and len(opt.state) == 2)
    everybody = ps.allgather(opt.state[net.weight]["exp_avg"].reshape(1, -1))
    out.append(torch.equal(everybody[0], everybody[1]) and bool(everybody.any()))
    # Fused: real state comes out, and a new optimizer continues from it.
    for make in (sgd, adam):
        net = model()
        opt = ps.DistributedOptimizer(make(net), model=net, update="fused")
        train(net, opt, 2)
        saved, kept = opt.state_dict(), {k: v.clone() for k, v in net.state_dict().items()}
        out.append(len(saved["state"]) == 4 and any(v.any() for v in saved["state"][0].values()))
        for wrapped_first in (False, True):
            again = model()
            again.load_state_dict(kept)
            opt2 = make(again)
            if not wrapped_first:
                opt2.load_state_dict(saved)
            opt2 = ps.DistributedOptimizer(opt2, model=again, update="fused")
            if wrapped_first:
                opt2.load_state_dict(saved)
            for step in range(2, STEPS):
                opt2.zero_grad()
                loss_of(again, step, ps.rank()).backward()
                opt2.step()
            out.append(same(again, reference(make)))
        opt.load_state_dict(saved)  # in the middle: the exchange starts anew
        ps.broadcast_optimizer_state(opt)
        for step in range(2, STEPS):
            opt.zero_grad()
            loss_of(net, step, ps.rank()).backward()
            opt.step()
        out.append(same(net, reference(make)))
    return out


@scenario
def process_sets():
    mine = ps.ProcessSet([ps.rank()])
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), named_parameters=net.named_parameters(), process_set=mine)
    opt2 = ps.DistributedOptimizer(sgd(model()), process_set=ps.ProcessSet([1 - ps.rank()]))
    with opt2.no_sync():
        opt2.synchronize()
    train(net, opt)
    alone = model()
    train(alone, sgd(alone))
    return [same(net, weights(alone))]


@scenario
def a_set_of_some_ranks_and_then_all():
    some = ps.DistributedOptimizer(sgd(model()), process_set=ps.ProcessSet([0]))
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net)
    train(net, opt)
    return [isinstance(some, torch.optim.SGD), same(net, reference(sgd))]


@scenario
def batch_norm():
    torch.manual_seed(3)
    x = torch.randn(6, 4, 2)
    reference_norm = torch.nn.BatchNorm1d(4)
    whole = x.clone().requires_grad_()
    (reference_norm(whole) * torch.arange(48.0).reshape(6, 4, 2)).sum().backward()
    cuts = [slice(0, 2), slice(2, 6)]
    mine = cuts[ps.rank()]
    norm = ps.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(torch.nn.BatchNorm1d(4)))
    part = x[mine].clone().requires_grad_()
    (norm(part) * torch.arange(48.0).reshape(6, 4, 2)[mine]).sum().backward()
    return [
        torch.allclose(part.grad, whole.grad[mine], atol=1e-4),
        torch.allclose(norm[0].running_mean, reference_norm.running_mean, atol=1e-6),
        torch.allclose(norm[0].running_var, reference_norm.running_var, atol=1e-6),
    ]


class Normed(torch.nn.Module):
    """With buffers of several dtypes, one of which state_dict() does not have."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
        self.register_buffer("scale", torch.tensor(1.0 + ps.rank(), dtype=torch.complex64), persistent=False)
        self.register_buffer("steps", torch.zeros(3, dtype=torch.bool))

    def forward(self, x):
        return self.body(x) * self.scale.abs()


def bytes_of(net):
    return [buffer.reshape(-1).view(torch.uint8).tolist() for buffer in net.buffers()]


def alike(value):
    everybody = ps.allgather_object(value)
    return all(other == everybody[0] for other in everybody)


@scenario
def buffers():
    """After each step they are rank 0's, which are those of its own batches alone."""
    torch.manual_seed(5)
    test = torch.randn(7, 4)
    out = []
    for update, size in (("local", 5), ("fused", 5), ("local", 20000)):
        net, alone = Normed(), Normed()
        for one in (net, alone):  # 103 bytes with the others, or more than travel with gradients
            one.register_buffer("more", torch.full((size,), ps.rank(), dtype=torch.int64).to(torch.uint8).repeat(4))
        opt = ps.DistributedOptimizer(sgd(net), model=net, update=update)
        out.append(net.scale.item() == 1)
        out.append(bool(opt._psring._carried_bytes([])) == (size == 5))
        alone.load_state_dict(net.state_dict())
        for step in range(STEPS):
            x, y = batch(step, ps.rank())
            before = bytes_of(net)
            alone.load_state_dict(net.state_dict())
            alone(x)
            opt.zero_grad()
            with opt.no_sync():
                loss = F.cross_entropy(net(x), y)
                loss.backward()
            out.append(ps.rank() == 0 or bytes_of(net) != before)  # not yet rank 0's
            out.append(not alike(bytes_of(net)))
            F.cross_entropy(net(x), y).backward()
            opt.step()
            out.append(alike(bytes_of(net)))
            alone(x)
            out.append(ps.rank() == 1 or torch.equal(net.body[1].running_mean, alone.body[1].running_mean))
        net.eval()
        with torch.no_grad():
            out.append(alike(net(test).view(torch.uint8).tolist()))
    net = Normed()
    opt = ps.DistributedOptimizer(sgd(net), model=net)
    for step in range(2):  # the first one opens the exchange
        x, y = batch(step, ps.rank())
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward(retain_graph=True)
        once = net.body[0].weight.grad.clone()
        loss.backward()
        out.append(torch.allclose(net.body[0].weight.grad, 2 * once))
        opt.step()
    net = Normed()
    opt = ps.DistributedOptimizer(sgd(net), model=net, broadcast_buffers=False)
    train(net, opt, 1)
    out.append(not alike(bytes_of(net)))
    if ps.rank() == 1:
        net.register_buffer("more", torch.zeros(2))
    said = message(lambda: ps.DistributedOptimizer(sgd(net), model=net))
    return out + ["buffer 2, body.1.running_mean float32[8] on rank 0, buffer 2, more float32[2] on rank 1" in said]


class Masked(torch.nn.Module):
    def __init__(self, size=2):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(2, size, bias=False)
        self.register_buffer("mask", torch.ones(size))

    def forward(self, x):
        return self.linear(x) * self.mask


@scenario
def buffers_that_backward_reads():
    """One that another rank's replaces is a change in place, and an equal one is none."""
    out = []
    for rank_changes in (False, True):
        net = Masked()
        opt = ps.DistributedOptimizer(sgd(net), model=net)
        for step in range(2):  # the first one opens the exchange
            opt.zero_grad()
            if step == 1 and rank_changes:
                net.mask.fill_(1 + ps.rank())
            loss = net(torch.ones(1, 2)).sum()
            loss.backward(retain_graph=True)
            if step == 1:
                with opt.no_sync():
                    said = message(loss.backward)
                wrong = rank_changes and ps.rank() == 1
                out.append("modified by an inplace operation" in said if wrong else said == "no error")
                out.append(net.mask.tolist() == [1, 1])
            opt.zero_grad()
        opt.close()
    return out


@scenario
def buffers_of_another_size():
    """As a cache has that grows on all ranks."""
    net = Masked()
    opt = ps.DistributedOptimizer(sgd(net), model=net)
    out = []
    for size in (3, 3, 7, 3):
        net.mask = torch.ones(size)
        opt.zero_grad()
        net.linear(torch.ones(1, 2)).sum().backward()
        net.mask.fill_(ps.rank() + size)
        opt.zero_grad()
        net.linear(torch.ones(1, 2)).sum().backward()
        opt.step()
        out.append(net.mask.tolist() == [size] * size)
    return out


@scenario
def models_with_buffers_are_not_kept():
    net = Masked()
    opt = ps.DistributedOptimizer(sgd(net), model=net)
    net.optimizer = opt
    net(torch.ones(1, 2)).sum().backward()
    opt.step()
    alive = weakref.ref(net)
    del net, opt
    gc.collect()
    return [alive() is None]


class CountsReads(torch.Tensor):
    """Counts how often a value of it goes to Python: on a GPU each time waits for the GPU."""

    reads = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ in ("__float__", "__bool__", "__int__", "item", "tolist"):
            CountsReads.reads += 1
        return super().__torch_function__(function, types, args, kwargs)


@scenario
def reads_few_results():
    """None where the model has no buffers but a batch norm's; else one in each step."""
    out = []
    large = Normed()
    large.register_buffer("large", torch.zeros(20000))
    others = 0 if ps.rank() == 0 else 3
    for net, broadcast, reads in (
        (model(), True, 0), (large, False, 0), (Normed().body, True, 0), (Normed(), True, others), (large, True, 3)
    ):  # fmt: skip
        opt = ps.DistributedOptimizer(sgd(net), model=net, broadcast_buffers=broadcast)
        train(net, opt, 1)
        exchange = opt._psring.reducer.exchange
        exchange.results = exchange.results.as_subclass(CountsReads)
        # As on a GPU, between two looks at the ranks' settings.
        exchange.on_gpu, exchange.steps, exchange.told_parameters = True, 64, None
        CountsReads.reads = 0
        train(net, opt, 3)
        out.append(CountsReads.reads == reads)
    return out


@scenario
def new_groups_and_two_models():
    net, extra = model(), torch.nn.Linear(3, 3)
    torch.nn.init.eye_(extra.weight)
    opt = ps.DistributedOptimizer(sgd(net), model=None)
    train(net, opt, 2)
    opt.add_param_group({"params": extra.parameters(), "lr": 0.05})
    opt.zero_grad()
    x, y = batch(2, ps.rank())
    F.cross_entropy(extra(net(x)), y).backward()
    opt.step()
    everybody = ps.allgather(torch.cat([weights(net), weights(extra)]).reshape(1, -1))
    return [torch.equal(everybody[0], everybody[1])]


@scenario
def hooks_of_older_torch():
    """Without register_post_accumulate_grad_hook, as before torch 2.1."""
    newer = torch.Tensor.register_post_accumulate_grad_hook
    del torch.Tensor.register_post_accumulate_grad_hook
    try:
        out = []
        for update in ("local", "fused"):
            net = model()
            opt = ps.DistributedOptimizer(sgd(net), model=net, update=update)
            train(net, opt)
            out.append(same(net, reference(sgd)))
        return out
    finally:
        torch.Tensor.register_post_accumulate_grad_hook = newer


@scenario
def torch_1_13_has_no_profile_hook_step():
    missing = "import torch\ndel torch.optim.Optimizer.profile_hook_step\nimport psring.torch"
    ran = subprocess.run([sys.executable, "-c", missing], env={**os.environ, "PYTHONPATH": PYTHONPATH}, capture_output=True)
    return [ran.returncode == 0]


@scenario
def buckets_leave_in_order_during_backward():
    from psring import _lib

    if isinstance(_lib.library(), ctypes.CDLL):
        return [True]  # only the stand-in keeps a log
    log = _lib.library().log
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net, bucket_mb=0.0001)
    train(net, opt, 2)
    number = opt._psring.reducer.exchange.number
    left = []
    net[2].bias.register_hook(lambda _: left.append(len(log)))
    net[0].weight.register_hook(lambda _: left.append(len(log)))
    loss_of(net, 0, 0).backward()
    order = [b for what, n, b in log if n == number]
    count = opt._psring.reducer.exchange.num_buckets
    return [order == list(range(count)) * 3, count > 1, left[1] > left[0]]


@scenario
def memory_is_freed():
    import gc
    import weakref

    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net)
    train(net, opt, 1)
    alive = weakref.ref(net[0].weight)
    del net, opt
    gc.collect()
    return [alive() is None]


@scenario
def after_shutdown_tensors_stay():
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net, update="fused")
    train(net, opt)
    from psring.torch.gradient_exchange import _detach_all

    inside = net[0].weight.data_ptr()
    _detach_all()
    return [net[0].weight.data_ptr() != inside, same(net, reference(sgd))]


class _Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("no gradient")


@scenario
def a_backward_that_failed_may_be_repeated():
    out = []
    for update in ("local", "fused"):
        net = model()
        opt = ps.DistributedOptimizer(sgd(net), model=net, update=update, bucket_mb=25)
        for step in range(STEPS):
            opt.zero_grad()
            said = message(_Fails.apply(net[2](net[1](net[0](batch(step, 0)[0])).detach())).sum().backward)
            failed_late = message((net[2](_Fails.apply(net[1](net[0](batch(step, 0)[0]))))).sum().backward)
            opt.zero_grad()
            loss_of(net, step, ps.rank()).backward()
            out += ["no gradient" in said, "no gradient" in failed_late]
            if update == "local":
                out.append(opt._psring.reducer.state == "done")  # by backward(), not by step()
            opt.step()
        out.append(same(net, reference(sgd)))
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net, backward_passes_per_step=2)
    for _ in range(2):
        loss_of(net, 0, ps.rank()).backward()
        message(_Fails.apply(net[0](batch(0, 0)[0])).sum().backward)
        opt.zero_grad()
        for state in ("idle", "done"):
            loss_of(net, 0, ps.rank()).backward()
            out.append(opt._psring.reducer.state == state)
        opt.step()
        opt.zero_grad()
    return out


def gradients(net):
    return torch.cat([p.grad.reshape(-1) for p in net.parameters()])


@scenario
def a_backward_that_failed_is_no_pass():
    """Where the script clears the model's gradients, and not the optimizer's."""
    out = []
    for passes in (1, 2):
        net = model()
        opt = ps.DistributedOptimizer(sgd(net), model=net, backward_passes_per_step=passes)
        for step in range(3):
            message(net[2](_Fails.apply(net[1](net[0](batch(step, 0)[0])))).sum().backward)
            net.zero_grad()
            for p in range(passes):
                loss_of(net, step + p, ps.rank()).backward()
            expected = copy.deepcopy(net)
            expected.zero_grad()
            sum(loss_of(expected, step + p, r) / 2 for p in range(passes) for r in range(2)).backward()
            out.append(torch.allclose(gradients(net), gradients(expected), atol=1e-6))
            opt.step()
            net.zero_grad()
    loss_of(net, 0, ps.rank()).backward()
    message(net[2](_Fails.apply(net[1](net[0](batch(0, 0)[0])))).sum().backward)
    net.zero_grad()
    out += ["in pass 2 of 2" in message(lambda: loss_of(net, 0, ps.rank()).backward()) for _ in range(2)]
    opt.zero_grad()
    train(net, opt, 1)
    return out


def two_jobs_with_the_same_parameters():
    net, kept = model(), []
    for _ in range(2):
        ps.init()
        kept.append(ps.DistributedOptimizer(sgd(net), model=net))
        train(net, kept[-1], 2)
        ps.shutdown()
    return weights(net).tolist()


def clip_and_average(make, ranks, clip):
    """What all ranks must end with where each one clips its own gradient."""
    net, opt = model(), None
    opt = make(net)
    for step in range(STEPS):
        sums = [torch.zeros_like(p) for p in net.parameters()]
        for rank in range(ranks):
            opt.zero_grad()
            loss_of(net, step, rank).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            for total, p in zip(sums, net.parameters()):
                total += p.grad
        for total, p in zip(sums, net.parameters()):
            p.grad = total / ranks
        opt.step()
    return weights(net)


def clipped_steps(net, opt, passes=1):
    for step in range(STEPS):
        opt.zero_grad()
        for _ in range(passes):
            (loss_of(net, step, ps.rank()) / passes).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        opt.step()


@scenario
def fused_clips_before_gradients_leave():
    out = []
    for make in (sgd, adam):
        for passes in (1, 2):
            net = model()
            opt = ps.DistributedOptimizer(make(net), model=net, update="fused", overlap=False, bucket_mb=0.0001)
            clipped_steps(net, opt, passes)
            out.append(same(net, clip_and_average(make, 2, 0.1)))
    return out


@scenario
def schedules_of_momentum():
    """OneCycleLR changes the momentum, or beta1, with the rate."""
    out = []
    for make in (sgd, adam, lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)):

        def schedule(opt):
            return torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=STEPS + 1)

        for update in ("local", "fused"):
            net = model()
            opt = ps.DistributedOptimizer(make(net), model=net, update=update, bucket_mb=0.0001)
            scheduler = schedule(opt)
            for step in range(STEPS):
                opt.zero_grad()
                loss_of(net, step, ps.rank()).backward()
                opt.step()
                scheduler.step()
            out.append(same(net, reference(make, schedule=schedule)))
    return out


@scenario
def a_late_hook_that_changes_gradients_is_found():
    def double(p):
        p.grad.mul_(2)

    def steps(late):
        net = model()
        if not late:
            net[0].weight.register_post_accumulate_grad_hook(double)
        opt = ps.DistributedOptimizer(sgd(net), model=net)
        if late:
            net[0].weight.register_post_accumulate_grad_hook(double)
        return message(lambda: train(net, opt))

    if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        return []
    said = steps(late=True)
    return [steps(late=False) == "no error", "0.weight was changed during backward(), after it had left" in said]


@scenario
def who_decays_what_nobody_uses_is_told():
    def said(decay, unused=True, **more):
        net = model()
        if unused:
            net.spare = torch.nn.Linear(2, 2)
            net.forward = lambda x: net[2](net[1](net[0](x)))
        opt = ps.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=decay), model=net, bucket_mb=0.0001, **more
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train(net, opt, 2)
        who = "this rank did not use" if "update" in more else "no rank used"
        return [f"{who} spare.weight and 1 other parameter in the first step" in str(w.message) for w in caught]

    return [
        said(0.1) == [True], said(0.0) == [], said(0.1, unused=False) == [], said(0.1, find_unused=True) == [],
        said(0.1, update="fused") == [True], said(0.0, update="fused") == [],
    ]  # fmt: skip


def alone_in_async():
    """One worker's gradients are applied one after the other, so the bits are known."""
    ps.init()
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net, sync="async", overlap=False)
    clipped_steps(net, opt)
    opt.synchronize_parameters()
    refused = message(lambda: ps.DistributedOptimizer(sgd(model()), sync="async", find_unused=True))
    return [same(net, clip_and_average(sgd, 1, 0.1)), 'use update="local" with sync="bsp"' in refused]


def message(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def a_weight_that_backward_needs_after_its_bucket_left(update, detached):
    """What the second step says. With "fused", new values may be in the weight's memory by then."""
    ps.init()
    first, second = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)
    net = torch.nn.Sequential(first, second)
    opt = ps.DistributedOptimizer(sgd(net), model=net, update=update, bucket_mb=1e-5)

    def step():
        weight = second.weight.detach() if detached else second.weight
        second(F.linear(first(torch.randn(5, 4)), weight)).square().mean().backward()
        opt.step()
        opt.zero_grad()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return [message(step), message(step)]


def needed_again_fused():
    return a_weight_that_backward_needs_after_its_bucket_left("fused", detached=True)


def left_out_before_own_gradients():
    """A step is left out, and the next one has gradients that backward() did not make."""
    ps.init()
    net = torch.nn.Linear(1, 1, bias=False)
    optimizer = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9), model=net)
    x = torch.full((1, 1), float(ps.rank() + 1))
    before = net.weight.item()
    for to_none in (True, False):
        net(x).sum().backward()
        optimizer.zero_grad(set_to_none=to_none)
        optimizer.step()  # as torch's own: by nothing, or by zeros
    still = net.weight.item() == before
    net(x).sum().backward()
    optimizer.zero_grad()
    (net.weight.grad,) = torch.autograd.grad(net(x).sum(), net.weight)
    optimizer.synchronize()
    net.weight.grad *= 2  # of the mean: not exchanged again
    optimizer.step()
    moved, grad = before - net.weight.item(), net.weight.grad.item()
    net(x).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    net.weight.grad += x.sum()  # in place
    optimizer.synchronize()
    return still, moved, grad, net.weight.grad.item()


def test_gradients_of_a_script_leave_after_a_step_that_was_left_out():
    for still, moved, grad, in_place in run(left_out_before_own_gradients):
        assert still and moved == pytest.approx(3.0) and grad == 3.0 and in_place == 1.5


def used_twice_fused():
    return a_weight_that_backward_needs_after_its_bucket_left("fused", detached=False)


def needed_again_local():
    return a_weight_that_backward_needs_after_its_bucket_left("local", detached=True)


@scenario
def mistakes():
    net = model()

    def fused(make):
        return lambda: ps.DistributedOptimizer(make(net.parameters()), update="fused")

    def twice():
        opt = ps.DistributedOptimizer(sgd(net), update="fused")
        loss_of(net, 0, 0).backward()
        loss_of(net, 0, 0).backward()

    def clipped():
        other = model()
        opt = ps.DistributedOptimizer(sgd(other), update="fused")
        loss_of(other, 0, 0).backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 1e-3)
        opt.step()

    def replaced():
        other = model()
        opt = ps.DistributedOptimizer(sgd(other), update="fused")
        loss_of(other, 0, 0).backward()
        other[0].weight.grad = other[0].weight.grad / 2
        opt.step()

    def thawed(update):
        other = model()
        other[0].weight.requires_grad_(False)
        opt = ps.DistributedOptimizer(sgd(other), update=update)
        other[0].weight.requires_grad_(True)
        loss_of(other, 0, 0).backward()
        opt.step()

    def changed():
        other = model()
        opt = ps.DistributedOptimizer(sgd(other), update="fused")
        train(other, opt, 1)
        opt.param_groups[0]["weight_decay"] = 0.5
        loss_of(other, 0, 0).backward()

    return [
        message(lambda: ps.DistributedOptimizer(sgd(torch.nn.Sequential(torch.nn.Linear(4 + ps.rank(), 2))))),
        message(lambda: ps.DistributedOptimizer(sgd(net), backward_passes_per_step=1 + ps.rank())),
        message(fused(lambda p: torch.optim.Adam(p, amsgrad=True))),
        message(fused(lambda p: torch.optim.SGD(p, lr=1, momentum=0.5, dampening=0.1))),
        message(fused(lambda p: torch.optim.RMSprop(p))),
        message(lambda: ps.DistributedOptimizer(sgd(net), sync="ssp:3", update="local")),
        message(lambda: ps.DistributedOptimizer(sgd(net), sync="ssp:x")),
        message(lambda: ps.DistributedOptimizer(sgd(net), op=ps.Adasum)),
        message(lambda: ps.DistributedOptimizer(sgd(net), compress="gzip")),
        message(lambda: ps.allreduce(torch.ones(2, device="meta"))),
        message(lambda: ps.DistributedOptimizer(sgd(model() if ps.rank() else net[0]))),
        message(lambda: ps.DistributedOptimizer(sgd(net), named_parameters=net[0].named_parameters())),
        message(twice),
        message(clipped),
        message(replaced),
        message(lambda: thawed("local")),
        message(lambda: thawed("fused")),
        message(changed),
    ]


def everything():
    ps.init()
    return {"mode": ps.mode(), **{name: function() for name, function in SCENARIOS.items()}}


@pytest.fixture(scope="module", params=["ring", "ps"])
def results(request):
    return run(everything, mode=request.param, timeout=300)


def test_equal_settings_are_equal_over_any_number_of_ranks():
    """The mean of whole numbers is rounded, from some hundred ranks on by more than a half in what is compared."""
    for size in (2, 3, 397, 1000, 10000):
        factor = torch.ones(1) / size
        for n in range(8):
            equal = torch.tensor([size, size * n, size * n * n]).float()
            assert same_numbers(equal * factor, size)
            joined = torch.tensor([size - 1, (size - 1) * n, (size - 1) * n * n]).float()  # one has no more data
            assert same_numbers(joined * factor, size)
            other = (n + 3) % 8
            assert not same_numbers((joined + torch.tensor([1.0, other, other * other])) * factor, size)


@pytest.mark.parametrize(
    "name", [n for n in SCENARIOS if n not in ("unused_parameters", "mistakes")]
)
def test_scenario(results, name):
    for rank, out in enumerate(results):
        assert all(out[name]), (rank, out[name])


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_backward_does_not_compute_on_new_values(mode):
    for first, second in run(needed_again_fused, mode=mode):
        assert first == "no error" and "modified by an inplace operation" in second
    for fine in (used_twice_fused, needed_again_local):
        assert run(fine, mode=mode) == [["no error", "no error"]] * 2


def test_a_script_in_async_clips():
    assert run(alone_in_async, size=1, mode="ps") == [[True, True]]


def test_parameters_may_have_an_optimizer_in_each_job():
    first, second = run(two_jobs_with_the_same_parameters)
    assert first == second


def test_unused_parameters_contribute_zeros(results):
    for out in results:
        steps, one, nobody = out["unused_parameters"]
        assert steps == [[[0.5, 0.5], [0.5, 0.5], [0.0, 0.0]]] * 3
        assert one == [0.5, 0.5] and nobody


def test_mistakes_name_the_thing_and_the_remedy(results):
    words = [
        "tensor 0, group0.parameter0 float32[2, 4] on rank 0, tensor 0, group0.parameter0 float32[2, 5] on rank 1", "passes=1",
        "Adam(amsgrad=True)", "dampening=0.1", "RMSprop", "ssp", "number of steps", "Adasum",
        "compress='gzip': it is", "have no data", "nothing on rank 0, tensor 2, group0.parameter2 float32[",
        "named_parameters", "before step()", "overlap=False", "overlap=False", "unfreeze", "unfreeze", "weight_decay changed",
    ]  # fmt: skip
    for out in results:
        for word, text in zip(words, out["mistakes"]):
            assert word in text, (word, text)
        remedy = 'needs mode="ps"' if out["mode"] == "ring" else 'use update="fused"'
        assert remedy in out["mistakes"][5]


def jobs_after_each_other():
    """How many models' memory three jobs have left, with and without their gradients in use."""
    kept, left = [], []
    for job in range(3):
        ps.init(coordinator=f"127.0.0.1:{int(os.environ['PORT']) + job}")  # the earlier one may listen still
        net = model()
        opt = ps.DistributedOptimizer(sgd(net), model=net)
        loss_of(net, 0, ps.rank()).backward()
        opt.step()
        kept += [net[0].weight, net[0].weight.grad]
        values = [tensor.detach().clone() for tensor in kept]
        ps.shutdown()
        del net, opt
        gc.collect()
        assert all(map(torch.equal, kept, values))
    for _ in range(2):
        gc.collect()
        left.append(models_in_memory())
        kept.clear()
    return left


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_a_job_that_has_ended_leaves_no_memory(mode):
    assert run(jobs_after_each_other, mode=mode, env={"PORT": str(free_port(3))}) == [[3, 0]] * 2
