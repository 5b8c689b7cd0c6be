"""Workers whose parameters part after the first step are told so."""

import os
import warnings

import pytest
import torch

import psring.torch as ps
from ranks import run

pytestmark = pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY names no library")


def _add_noise(net, opt, step):
    """As stochastic rounding, or Langevin dynamics."""
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn_like(p) * 1e-6)


def _step_alone(net, opt, step):
    if step == 2:
        with opt.no_sync():
            net(torch.randn(5, 4)).square().mean().backward()
            opt.step()


def _accumulate(net, opt, step):
    opt.zero_grad()
    with opt.no_sync():
        net(torch.randn(5, 4)).square().mean().backward()


def _join(net, opt, step):
    if step == 16:
        for _ in range(ps.rank()):  # one batch more on rank 1
            net(torch.randn(5, 4)).square().mean().backward()
            opt.step()
        last = ps.join()
        ps.broadcast_parameters(net.state_dict(), root_rank=last)


def _train(after_step, momentum=0.0):
    ps.init()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum), model=net)
    torch.manual_seed(ps.rank())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for step in range(70):
            net(torch.randn(5, 4)).square().mean().backward()
            opt.step()
            opt.zero_grad()
            if after_step is not None:
                after_step(net, opt, step)
    return [str(warning.message) for warning in seen]


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_noise_of_each_workers_own_is_a_warning(mode):
    for warned in run(_train, mode=mode, args=(_add_noise,)):
        assert len(warned) == 1 and "parameters are not the same any more after step" in warned[0]


def _load_alone(net, opt, step):
    if step == 3 and ps.rank() == 0:
        state = opt.state_dict()
        state["state"] = {0: {"momentum_buffer": torch.ones(8, 4)}}
        opt.load_state_dict(state)


def test_a_state_that_rank_0_alone_loads_is_a_warning_with_the_way():
    for warned in run(_train, args=(_load_alone, 0.5)):
        assert len(warned) == 1 and "call broadcast_optimizer_state(optimizer, root_rank=0)" in warned[0]


@pytest.mark.parametrize("after_step", [None, _step_alone, _accumulate, _join])
def test_what_a_script_may_do_is_none(after_step):
    assert run(_train, args=(after_step,)) == [[], []]
