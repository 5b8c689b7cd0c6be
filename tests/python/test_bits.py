"""The bits of a training: the same in both topologies, and torch's own."""

import os
import zlib

import pytest
import torch
import torch.nn.functional as F

import psring.torch as ps
from ranks import run

pytestmark = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in has bits of its own"
)

STEPS = 5


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 37), torch.nn.ReLU(), torch.nn.Linear(37, 5)
    )


def batch(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(6, 20, generator=generator), torch.randint(5, (6,), generator=generator)


def optimizer_of(model, kind):
    if kind == "adam":
        return torch.optim.Adam(model.parameters(), lr=0.01)
    if kind == "groups":  # no weight decay on biases
        biases = [p for n, p in model.named_parameters() if n.endswith("bias")]
        others = [p for n, p in model.named_parameters() if not n.endswith("bias")]
        return torch.optim.SGD(
            [{"params": others, "weight_decay": 0.1}, {"params": biases, "lr": 0.01}], lr=0.1, momentum=0.9
        )
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.0 if kind == "sgd" else 0.9)


def crc(model):
    values = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return zlib.crc32(bytes(values.view(torch.uint8).tolist()))


def one_step(model, opt, step, passes, autocast, scaler):
    opt.zero_grad()
    for i in range(passes):
        x, y = batch(step * 7 + i, ps.rank())
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(model(x).float(), y)
        if scaler is None:
            loss.backward()
        else:
            if step == 2 and ps.rank() == 0:
                loss = loss * float("inf")  # this step is skipped on all ranks
            scaler.scale(loss).backward()
    if scaler is None:
        opt.step()
    else:
        scaler.step(opt)
        scaler.update()


def train(update, kind, passes=1, autocast=False, scaled=False):
    model = net()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if scaled else None
    opt = ps.DistributedOptimizer(
        optimizer_of(model, kind), model=model, update=update, backward_passes_per_step=passes, bucket_mb=0.01,
        scaler=scaler if update == "fused" else None,
    )  # fmt: skip
    for step in range(STEPS):
        one_step(model, opt, step, passes, autocast, scaler)
    return crc(model)


WAYS = [
    ("local", "sgd", {}),
    ("local", "momentum", {}),
    ("local", "adam", {}),
    ("local", "groups", {}),
    ("fused", "sgd", {}),
    ("fused", "momentum", {}),
    ("fused", "adam", {}),
    ("fused", "groups", {}),
    ("local", "momentum", {"passes": 3}),
    ("fused", "momentum", {"passes": 3}),
    ("local", "momentum", {"autocast": True}),
    ("local", "momentum", {"scaled": True}),
    ("fused", "momentum", {"scaled": True}),
]


def all_ways():
    ps.init()
    return [train(update, kind, **more) for update, kind, more in WAYS]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_servers_and_ring_end_with_the_same_bits(size):
    ring = run(all_ways, size=size, mode="ring", timeout=300)
    assert all(rank == ring[0] for rank in ring)
    for servers in ("1", "2", "3") if size == 3 else ("2",):
        of_servers = run(all_ways, size=size, mode="ps", env={"PSRING_SERVERS": servers}, timeout=300)
        assert of_servers == ring, f"{servers} servers"


def plain():
    results = []
    for kind in ("sgd", "momentum", "adam", "groups"):
        model = net()
        opt = optimizer_of(model, kind)
        for step in range(STEPS):
            opt.zero_grad()
            x, y = batch(step * 7, 0)
            F.cross_entropy(model(x).float(), y).backward()
            opt.step()
        results.append(crc(model))
    return results


def local_ways():
    ps.init()
    return [train("local", kind) for kind in ("sgd", "momentum", "adam", "groups")]


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_one_process_is_plain_torch(mode):
    assert run(local_ways, size=1, mode=mode)[0] == plain()


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist()


def fused_and_plain():
    """(fused, plain) weights of each optimizer; in between, the optimizer's
    state goes through state_dict()."""
    ps.init()
    results = []
    for kind in ("sgd", "momentum", "adam", "groups"):
        model, other = net(), net()
        opt, its = optimizer_of(model, kind), optimizer_of(other, kind)
        opt = ps.DistributedOptimizer(opt, model=model, update="fused", bucket_mb=0.01)
        for step in range(STEPS):
            one_step(model, opt, step, 1, False, None)
            one_step(other, its, step, 1, False, None)
            if step == 2:
                opt.load_state_dict(opt.state_dict())
        results.append((weights(model), weights(other)))
    return results


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_fused_updates_are_torchs_within_rounding(mode):
    for fused, expected in run(fused_and_plain, size=1, mode=mode, timeout=200)[0]:
        assert fused == pytest.approx(expected, rel=1e-4, abs=2e-6)


def over_gloo():
    ps.init(mode="ddp")
    return train("local", "momentum")


def over_ring():
    ps.init()
    return train("local", "momentum")


def test_two_processes_are_ddp_over_gloo():
    assert run(over_ring) == run(over_gloo)
