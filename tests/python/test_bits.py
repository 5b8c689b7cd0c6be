"""The bits of a training: the same in both topologies, and torch's own."""

import contextlib
import os
import zlib

import pytest
import torch
import torch.nn.functional as F

import psring.torch as ps
from ranks import free_port, run

pytestmark = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in has bits of its own"
)

STEPS = 5


def net(norm=()):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 300), *norm, torch.nn.ReLU(), torch.nn.Linear(300, 37), torch.nn.ReLU(), torch.nn.Linear(37, 5)
    )


def normed(sync):
    model = net([torch.nn.BatchNorm1d(300)])
    return ps.SyncBatchNorm.convert_sync_batchnorm(model) if sync else model


def my_rank():
    return int(os.environ["PSRING_RANK"])


def device():
    """test_gpu.py sets another."""
    return os.environ.get("TEST_DEVICE", "cpu")


def batch(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x, y = torch.randn(6, 20, generator=generator), torch.randint(5, (6,), generator=generator)
    return x.to(device()), y.to(device())


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
    """Of parameters and buffers."""
    values = [p.detach().reshape(-1).float() for p in (*model.parameters(), *model.buffers())]
    return zlib.crc32(bytes(torch.cat(values).cpu().view(torch.uint8).tolist()))


def one_step(model, opt, step, passes=1, autocast=None, scaler=None, waiting=contextlib.nullcontext):
    """With `waiting`, what all but the last of several passes are made in."""
    opt.zero_grad()
    for i in range(passes):
        x, y = batch(step * 7 + i, my_rank())
        with waiting() if i + 1 < passes else contextlib.nullcontext():
            with torch.autocast(device(), dtype=autocast or torch.bfloat16, enabled=autocast is not None):
                loss = F.cross_entropy(model(x.to(next(model.parameters()).dtype)).float(), y)
            if scaler is None:
                loss.backward()
            else:
                if step == 2 and my_rank() == 0:
                    loss = loss * float("inf")  # this step is skipped on all ranks
                scaler.scale(loss).backward()
    if scaler is None:
        opt.step()
    else:
        scaler.step(opt)
        scaler.update()


def new_scaler(scaled):
    return torch.amp.GradScaler(device(), init_scale=1024.0) if scaled else None


def trained(update, kind, passes=1, autocast=None, scaled=False, norm=None, dtype=None):
    """The model after some steps."""
    model = (net() if norm is None else normed(norm == "sync")).to(device(), dtype)
    scaler = new_scaler(scaled)
    opt = ps.DistributedOptimizer(
        optimizer_of(model, kind), model=model, update=update, backward_passes_per_step=passes, bucket_mb=0.01,
        scaler=scaler if update == "fused" else None,
    )  # fmt: skip
    for step in range(STEPS):
        one_step(model, opt, step, passes, autocast, scaler)
    if scaled:
        assert scaler.get_scale() == 512  # one step was skipped
    return model


BF16, FP16 = {"autocast": torch.bfloat16}, {"autocast": torch.float16}
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
    ("local", "adam", {"passes": 3}),
    ("fused", "adam", {"passes": 3}),
    ("local", "momentum", BF16),
    ("local", "momentum", {"scaled": True}),
    ("fused", "momentum", {"scaled": True}),
    ("local", "adam", {**FP16, "scaled": True}),
    ("fused", "adam", {**FP16, "scaled": True}),
    ("local", "momentum", {"norm": "batch"}),
    ("fused", "momentum", {"norm": "batch"}),
    ("local", "momentum", {"norm": "sync"}),
    ("fused", "momentum", {"norm": "sync"}),
    ("fused", "adam", {"dtype": torch.bfloat16}),
]
# What torch's DDP has, too; its SyncBatchNorm needs a GPU.
OF_DDP = [way for way in WAYS if way[0] == "local" and way[2].get("norm") != "sync"]


def all_ways():
    ps.init()
    return [crc(trained(update, kind, **more)) for update, kind, more in WAYS]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_servers_and_ring_end_with_the_same_bits(size):
    ring = run(all_ways, size=size, mode="ring", timeout=300)
    assert all(rank == ring[0] for rank in ring)
    for servers in {2: ("2",), 3: ("1", "2", "3"), 5: ("1", "3")}[size]:
        of_servers = run(all_ways, size=size, mode="ps", env={"PSRING_SERVERS": servers}, timeout=300)
        assert of_servers == ring, f"{servers} servers"


# In a process like a rank's: with more threads, or beside other tests, torch may
# sum in another order.
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
    return [crc(trained("local", kind)) for kind in ("sgd", "momentum", "adam", "groups")]


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_one_process_is_plain_torch(mode):
    assert run(local_ways, size=1, mode=mode) == run(plain, size=1)


def one_worker():
    ps.init()
    model = net()
    opt = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model, update="local")
    one_step(model, opt, 0)
    total = ps.sum(torch.tensor(3.0)).item()
    return opt.traffic(), total, ps.join()


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_the_mean_of_one_worker_is_not_exchanged(mode):
    assert run(one_worker, size=1, mode=mode) == [({}, 3.0, 0)]


def sparse_as_dense():
    ps.init()
    table = torch.nn.Embedding(3, 2, sparse=True)
    opt = ps.DistributedOptimizer(torch.optim.Adam(table.parameters()), model=table, sparse_as_dense=True)
    for _ in range(2):
        table(torch.tensor([1])).sum().backward()
        opt.step()
    return table.weight.grad.tolist()


def test_one_worker_makes_sparse_gradients_dense_too():
    assert run(sparse_as_dense, size=1) == [[[0.0, 0.0], [2.0, 2.0], [0.0, 0.0]]]


def tiny_steps():
    """Steps to subnormal parameters, in a script that has its own operations flush such numbers."""
    torch.set_flush_denormal(True)
    ps.init(same_host=os.environ["TEST_SAME_HOST"])
    model = torch.nn.Linear(3000, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    opt = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model=model, update="fused")
    for _ in range(3):
        opt.zero_grad()
        model(torch.full((1, 3000), 1e-37 * (1 + my_rank()))).sum().backward()
        opt.step()
    return model.weight.detach().view(torch.int32)[0, ::1000].tolist()


@pytest.mark.parametrize("same_host", ["auto", "off"])
def test_subnormal_numbers_are_kept_in_both_topologies(same_host):
    env = {"TEST_SAME_HOST": same_host}
    ring, servers = run(tiny_steps, env=env), run(tiny_steps, mode="ps", env=env)
    assert ring == servers and ring[0] == ring[1]
    assert all(bits & 0x7FFFFF and not bits & 0x7F800000 for bits in ring[0])  # subnormal


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
            one_step(model, opt, step)
            one_step(other, its, step)
            if step == 2:
                opt.load_state_dict(opt.state_dict())
        results.append((weights(model), weights(other)))
    return results


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_fused_updates_are_torchs_within_rounding(mode):
    for fused, expected in run(fused_and_plain, size=1, mode=mode, timeout=200)[0]:
        assert fused == pytest.approx(expected, rel=1e-4, abs=2e-6)


def training(kind, steps, file, load):
    """Fused; from the file where `load` says so, and into it where it does not. "KIND of bf16": of such
    parameters, whose state is float32."""
    ps.init()
    model = net()
    kind, _, of_bf16 = kind.partition(" of ")
    if of_bf16:
        model.bfloat16()
    opt = optimizer_of(model, kind)
    saved = torch.load(file) if load else {}
    if load:
        model.load_state_dict(saved["model"])
    if load and not of_bf16:
        opt.load_state_dict(saved["optimizer"])
    opt = ps.DistributedOptimizer(opt, model=model, update="fused", bucket_mb=0.01)
    if load and of_bf16:
        opt.load_state_dict(saved["optimizer"])
    for step in steps:
        one_step(model, opt, step)
    state = {"model": model.state_dict(), "optimizer": opt.state_dict()}  # all ranks
    if not load and ps.rank() == 0:
        torch.save(state, file)
    ps.barrier()
    return crc(model)


def files(kind):
    return os.path.join(os.environ["STATE_DIRECTORY"], kind)


KINDS = ("sgd", "momentum", "adam", "groups", "sgd of bf16", "adam of bf16")


def six_steps():
    return [training(kind, range(6), files(kind + "6"), False) for kind in KINDS]


def three_steps():
    return [training(kind, range(3), files(kind), False) for kind in KINDS]


def three_more():
    return [training(kind, range(3, 6), files(kind), True) for kind in KINDS]


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_a_fused_optimizer_goes_on_from_its_saved_state(mode, tmp_path):
    env = {"STATE_DIRECTORY": str(tmp_path), "PSRING_SERVERS": "2"}
    whole = run(six_steps, mode=mode, env=env, timeout=200)
    run(three_steps, mode=mode, env=env, timeout=200)
    assert run(three_more, mode=mode, env=env, timeout=200) == whole


def under_ddp():
    """Checksums of OF_DDP under torch's own DistributedDataParallel."""
    torch.distributed.init_process_group("gloo", rank=my_rank(), world_size=2)
    results = []
    for _, kind, more in OF_DDP:
        model = net() if "norm" not in more else normed(False)
        ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)
        opt, scaler = optimizer_of(model, kind), new_scaler("scaled" in more)
        for step in range(STEPS):
            one_step(ddp, opt, step, more.get("passes", 1), more.get("autocast"), scaler, ddp.no_sync)
        results.append(crc(model))
        # What of it went after the group would end the group's threads while it holds Python's
        # lock, for which one of them may wait.
        del ddp
    torch.distributed.barrier()  # rank 0 has the store: who comes late may wait for ever
    torch.distributed.destroy_process_group()
    return results


def in_mode_ddp():
    """The same hooks and buckets as in other modes, but Gloo sums."""
    ps.init(mode="ddp")
    return [crc(trained(update, kind, **more)) for update, kind, more in WAYS if update == "local"]


def test_two_processes_are_ddp_over_gloo():
    ring = run(all_ways, timeout=300)
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    # Rank 0: others of DDP's have buffers of their own until the next forward.
    assert run(under_ddp, env=env, timeout=300)[0] == [ring[0][WAYS.index(way)] for way in OF_DDP]
    local = [i for i, way in enumerate(WAYS) if way[0] == "local"]
    assert run(in_mode_ddp, timeout=300) == [[rank[i] for i in local] for rank in ring]
