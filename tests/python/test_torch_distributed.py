"""psring under torch.distributed, and torch.distributed under psring."""

import contextlib
import importlib.util
import inspect
import os
import re
import time
from datetime import timedelta

import pytest
import torch

import psring
from ranks import free_port, run, run_script, start
from test_optimizer import STEPS, loss_of, model, reference, same, sgd, train, weights


def master():
    """What torch.distributed's ranks of a job have in common."""
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}


def join_group(**options):
    """Makes the default process group, over backend psring."""
    import psring.torch  # noqa: F401

    os.environ.update(RANK=os.environ["PSRING_RANK"], WORLD_SIZE=os.environ["PSRING_SIZE"])
    torch.distributed.init_process_group("psring", **options)


def under_ddp():
    import torch.distributed as dist

    import psring.torch  # noqa: F401

    os.environ.setdefault("RANK", os.environ["PSRING_RANK"])
    os.environ.setdefault("WORLD_SIZE", os.environ["PSRING_SIZE"])
    dist.init_process_group("psring")
    rank = dist.get_rank()
    net = model()
    if rank == 1:
        torch.nn.init.zeros_(net[0].weight)  # DDP makes it rank 0's
    ddp = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.0001)
    opt = sgd(ddp)
    for step in range(STEPS):
        opt.zero_grad()
        loss_of(ddp, step, rank).backward()
        opt.step()
    out = [same(net, reference(sgd))]
    x = torch.full((2,), float(rank))
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    out.append(x.tolist() == [1, 1])
    parts = [torch.zeros(2) for _ in range(2)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    out.append(parts[1].tolist() == [1, 1] and parts[0].tolist() == [0, 0])
    whole = torch.zeros(4)
    dist.all_gather_into_tensor(whole, torch.full((2,), float(rank)))
    by_rank = [[torch.zeros(2), torch.zeros(1)] for _ in range(dist.get_world_size())]
    dist.all_gather_coalesced(by_rank, [torch.full((2,), float(rank)), torch.full((1,), rank + 10.0)])
    assert [[part.tolist() for part in parts] for parts in by_rank] == [[[r, r], [r + 10]] for r in range(len(by_rank))]
    out.append(whole.tolist() == [0, 0, 1, 1])
    part = torch.zeros(1)
    dist.reduce_scatter_tensor(part, torch.arange(2.0))
    out.append(part.item() == 2 * rank)
    received = torch.zeros(2)
    dist.all_to_all_single(received, torch.arange(2.0) + 10 * rank)
    shaped = torch.zeros(8)  # as many elements in other rows
    dist.all_to_all_single(shaped, torch.arange(8.0).reshape(4, 2) + 10 * rank)
    assert shaped.tolist() == [float(10 * r + 4 * rank + i) for r in range(2) for i in range(4)]
    out.append(received.tolist() == [rank, 10 + rank])
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    out.append(objects == [{"rank": 0}, {"rank": 1}])
    dist.barrier()
    group = dist.new_group([1])
    if rank == 1:
        dist.all_reduce(x, group=group)
    try:
        dist.recv(x)
    except NotImplementedError as error:
        out.append("gloo" in str(error))
    return out


def test_ddp_runs_over_psring():
    env = master()
    for out in run(under_ddp, env=env):
        assert len(out) == 8 and all(out), out


def met_without_a_launcher(how):
    """As mp.spawn starts a script's ranks, and who sets torch's variables by hand."""
    import psring.torch  # noqa: F401

    place = {"rank": int(os.environ["PSRING_RANK"]), "world_size": int(os.environ["PSRING_SIZE"])}
    for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "COORDINATOR", "MODE"):
        del os.environ["PSRING_" + name]
    if how == "env://":
        os.environ.update(RANK=str(place.pop("rank")), WORLD_SIZE=str(place.pop("world_size")))
    torch.distributed.init_process_group("psring", init_method=how, **place)
    x = torch.ones(2)
    torch.distributed.all_reduce(x)
    return x.tolist()


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in tells no address")
@pytest.mark.parametrize("how", ["env://", "tcp", "file"])
def test_ranks_without_a_launcher_meet_where_torch_does(how, tmp_path):
    """No PSRING_COORDINATOR: and MASTER_PORT is taken by torch's own store."""
    url = {"tcp": f"tcp://127.0.0.1:{free_port()}", "file": f"file://{tmp_path}/store"}.get(how, how)
    env = {**master(), "PSRING_INSECURE": "1"}  # a file names no host: rank 0 listens on more than loopback
    assert run(met_without_a_launcher, env=env, args=(url,)) == [[2.0, 2.0]] * 2


def met_through_the_job(backend):
    import psring.torch as ps

    found = []
    for _ in range(2):
        torch.distributed.init_process_group(backend)
        x = torch.ones(2)
        torch.distributed.all_reduce(x)
        found.append((torch.distributed.get_rank() == ps.rank(), x.tolist()))
        torch.distributed.destroy_process_group()
    try:
        torch.distributed.init_process_group(backend, rank=1 - ps.rank(), world_size=2)
    except ValueError as error:
        found.append(str(error))
    return found


GLOO_UNDER_PSRING = """
import torch, torch.distributed as dist, psring.torch
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    model(torch.ones(2, 4)).sum().backward()
    opt.step()
print("done")
del model  # after its group, it might never end: it waits for Gloo's threads, and they for Python's lock
dist.destroy_process_group()
"""


def test_gradients_over_gloo_are_not_missed(tmp_path):
    """psring warns where workers exchange nothing. It does not see what torch's own groups exchange."""
    (tmp_path / "train.py").write_text(GLOO_UNDER_PSRING)
    for code, out, err in run_script(str(tmp_path / "train.py"), 2):
        assert (code, out.strip()) == (0, "done") and "optimizer" not in err, err


@pytest.mark.parametrize("wrapped", [False, True])
def test_workers_with_a_group_that_train_each_for_itself_are_told_so(wrapped, tmp_path):
    """As do those of Accelerate's Accelerator() and Transformers' Trainer without cpu=True, where there is no GPU."""
    model = "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))" if wrapped else "torch.nn.Linear(4, 1)"
    (tmp_path / "train.py").write_text(f"""
import torch, torch.distributed as dist, psring.torch
dist.init_process_group("psring")
model = {model}
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    model(torch.ones(2, 4)).sum().backward()
    opt.step()
""")
    ranks = run_script(str(tmp_path / "train.py"), 2)
    assert [code for code, _, _ in ranks] == [0, 0], ranks
    said = "20 steps of an optimizer, and nothing has travelled over the backend psring: each worker trains for itself"
    assert (said in ranks[0][2]) != wrapped and said not in ranks[1][2], ranks


@pytest.mark.parametrize("backend", ["psring", "gloo"])
def test_under_psrings_own_launcher_a_group_needs_no_variables(backend):
    """psring run sets none of torchrun's. A script of one process gets torch's error."""
    env = {"RANK": "", "WORLD_SIZE": "", "MASTER_ADDR": "", "MASTER_PORT": ""}
    both = [(True, [2.0, 2.0])] * 2
    for rank, found in enumerate(run(met_through_the_job, env=env, args=(backend,))):
        assert found == [*both, f"init_process_group(rank={1 - rank}), where psring's job has rank {rank}: leave it out"]


TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}


@pytest.mark.parametrize("variables, by_psring", [
    ({}, False),
    (TORCHRUN, False),
    ({**TORCHRUN, "PSRING_RANK": "0"}, False),
    ({"PSRING_RANK": "0"}, True),
    ({"PMI_RANK": "0"}, True),
    ({"SLURM_PROCID": "0", "SLURM_STEP_ID": "0"}, True),
    ({"SLURM_PROCID": "0", "SLURM_STEP_ID": "4294967291"}, False),  # a batch script
    ({**TORCHRUN, "PSRING_COORDINATOR_HOSTED": "1"}, True),  # of a pod in which psring run has started
    ({**TORCHRUN, "PSRING_COORDINATOR_HOSTED": "1", "TORCHELASTIC_RUN_ID": "x"}, False),
])  # fmt: skip
def test_whose_place_counts_where_a_group_is_made(monkeypatch, variables, by_psring):
    from psring.torch import group_rendezvous

    for name in list(os.environ):
        if name.startswith(("PSRING_", "SLURM_", "PMI_", "OMPI_", "TORCHELASTIC_")) or name in TORCHRUN:
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert group_rendezvous._is_for_psring({}) == by_psring
    assert not group_rendezvous._is_for_psring({"rank": ["0"]}) or "MASTER_PORT" not in variables


def test_a_torch_that_is_too_old_for_the_backend_is_named(monkeypatch):
    import psring.torch

    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.6.0"))
    with pytest.raises(RuntimeError, match="needs torch 2.7 or newer, and this is 2.6.0"):
        psring.torch._backend(None)


def test_without_a_launcher_torch_says_what_it_misses(monkeypatch):
    import psring.torch  # noqa: F401

    for name in ("RANK", "PSRING_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="environment variable RANK expected"):
        torch.distributed.init_process_group("psring")


def compiled_ddp():
    """Of each way: whether the model ends with the bits of the one that is not compiled, and its buckets."""
    join_group()

    def trained(backend, order):
        torch.manual_seed(3)
        layers = [torch.nn.Linear(4, 600), torch.nn.Linear(600, 600), torch.nn.Linear(600, 600), torch.nn.BatchNorm1d(600)]
        net = torch.nn.Sequential(*layers)
        inner = torch.compile(net, backend=backend) if order == "inside" else net
        ddp = torch.nn.parallel.DistributedDataParallel(inner, bucket_cap_mb=1)
        call = torch.compile(ddp, backend=backend) if order == "outside" else ddp
        opt, draw = sgd(net), torch.Generator().manual_seed(torch.distributed.get_rank())
        for _ in range(3):
            opt.zero_grad()
            call(torch.randn(4, 4, generator=draw)).square().mean().backward()
            opt.step()
        buckets = ddp._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(",")
        return torch.cat([value.reshape(-1).float() for value in net.state_dict().values()]), len(buckets)

    plain, buckets = trained(None, "")
    assert buckets > 1
    ways = [(backend, order) for backend in ("eager", "aot_eager") for order in ("outside", "inside")]
    return [torch.equal(plain, trained(*way)[0]) for way in ways]


@pytest.mark.skipif(not hasattr(torch, "compiler"), reason="torch 2.1 has backends, and a compiler for them")
def test_a_compiled_model_trains_under_ddp():
    env = master()
    assert run(compiled_ddp, env=env, timeout=200) == [[True] * 4] * 2


def groups():
    import gc
    import threading

    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    join_group()
    part = dist.new_group([0, 1])
    x = torch.ones(1)
    dist.all_reduce(x, group=part)
    dist.destroy_process_group(part)
    del part
    total = functional.all_reduce(torch.ones(1), "sum", dist.group.WORLD) + 0
    dist.destroy_process_group()
    gc.collect()
    for _ in range(100):
        threads = [t for t in threading.enumerate() if t.name == "psring futures"]
        if not threads:
            break
        time.sleep(0.05)
    return x.item(), total.item(), len(threads)


def test_groups_have_names_and_leave_no_threads():
    env = master()
    assert run(groups, env=env) == [(2, 2, 0)] * 2


def misfits():
    import torch.distributed as dist

    join_group()
    me, group, zeros = dist.get_rank(), dist.distributed_c10d._get_default_group(), torch.zeros
    half = zeros(4, dtype=torch.float16)
    said = []
    for call in (
        lambda: dist.reduce_scatter_tensor(zeros(5_000_000), zeros(8)), lambda: dist.reduce_scatter_tensor(half, zeros(8)),
        lambda: dist.reduce_scatter(zeros(4), [zeros(4)]), lambda: dist.reduce_scatter(zeros(4), [zeros(4), zeros(3)]),
        lambda: group.reduce_scatter([half], [[zeros(4)] * 2]), lambda: dist.all_gather_into_tensor(zeros(5), zeros(2)),
        lambda: dist.all_gather_into_tensor(half, zeros(2)), lambda: dist.all_gather([zeros(2)], zeros(2)),
        lambda: dist.all_gather_into_tensor(zeros(2 * me + 2), zeros(me + 1)),
        lambda: dist.all_gather([zeros(2), zeros(3)], zeros(2)), lambda: dist.all_gather([zeros(me + 1)] * 2, zeros(me + 1)),
        lambda: dist.all_to_all([zeros(2)], [zeros(2)]), lambda: dist.all_to_all([zeros(2)] * 2, [zeros(1)] * 2),
        lambda: group.alltoall([half] * 2, [zeros(4)] * 2), lambda: dist.all_to_all_single(zeros(2), zeros(4)),
        lambda: dist.all_to_all_single(zeros(4), zeros(4), [1, 2], [2, 2]),
        lambda: dist.all_to_all_single(zeros(4), zeros(4), [1, 3], [2, 2]),
        lambda: dist.all_to_all_single(zeros(4), zeros(4, 2)),
    ):  # fmt: skip
        try:
            call()
            said.append("")
        except ValueError as error:
            said.append(str(error))
    # Where the output is a part of the input, or the other way round, or has gaps, or comes in parts of other sizes.
    v = torch.arange(4.0) + 10 * me
    dist.all_gather_into_tensor(v, v[2 * me : 2 * me + 2])  # as FSDP does
    w, u = torch.arange(4.0) + 10 * me, torch.arange(4.0) + 10 * me
    dist.all_gather_into_tensor(w, w[:2])
    dist.all_to_all_single(u, u)
    shifted = torch.arange(8193.0) + 10_000 * me
    dist.all_to_all_single(shifted[1:], shifted[:-1])
    assert shifted[1:].tolist() == [10_000 * r + 4096 * me + i for r in range(2) for i in range(4096)]
    memory = bytearray(4 * 30_000)  # of two tensors, each with a storage of its own
    view = memoryview(memory)
    big, part = torch.frombuffer(view, dtype=torch.float32), torch.frombuffer(view[40_000 : 100_000], dtype=torch.float32)
    part.fill_(me + 1)
    dist.all_gather_into_tensor(big, part)
    assert big[:15_000].eq(1).all() and big[15_000:].eq(2).all()
    gaps = zeros(4, 2)[:, 0]
    dist.all_gather_into_tensor(gaps, torch.ones(2) + me)
    assert v.tolist() == [0, 1, 12, 13] and w.tolist() == [0, 1, 10, 11] and gaps.tolist() == [1, 1, 2, 2], (v, w, gaps)
    assert u.tolist() == [2 * me, 2 * me + 1, 2 * me + 10, 2 * me + 11], u
    x, y, z = torch.arange(4.0) + me, zeros(4, 2)[:, 0], zeros(3)
    dist.reduce_scatter_tensor(x[2 * me : 2 * me + 2], x)
    dist.reduce_scatter_tensor(y, torch.arange(8.0))
    dist.all_to_all_single(z, torch.arange(3.0) + 10 * me, [1 + me, 2 - me], [1 + me, 2 - me])
    return said, x.tolist(), y.tolist(), z.tolist()


def test_tensors_that_do_not_fit_are_refused_before_the_library_takes_their_memory():
    env = master()
    ranks = run(misfits, env=env)
    for said, *_ in ranks:
        assert len(said) == 18 and all(said), said
        assert said[0] == (
            "reduce_scatter_tensor: the input is float32[8], which does not fit the other tensors of the call: "
            "pass one with 10000000 elements of float32"
        )
    assert [x for _, x, _, _ in ranks] == [[1, 3, 2, 3], [1, 2, 5, 7]]
    assert [y for _, _, y, _ in ranks] == [[0, 2, 4, 6], [8, 10, 12, 14]]
    assert [z for _, _, _, z in ranks] == [[0, 10, 11], [1, 2, 12]]


def transfers():
    """Between all pairs of ranks, in and out of order."""
    import torch.distributed as dist

    join_group()
    me, size = dist.get_rank(), dist.get_world_size()
    others = [rank for rank in range(size) if rank != me]
    came = {rank: torch.zeros(5) for rank in others}
    works = [dist.isend(torch.full((5,), 10.0 * me + rank), rank) for rank in others]
    works += [dist.irecv(came[rank], rank) for rank in others]
    for work in works:
        work.wait()
    assert all(tensor.tolist() == [10.0 * rank + me] * 5 for rank, tensor in came.items())

    mine, left = torch.full((100_000,), float(me)), torch.zeros(100_000)
    around = [dist.P2POp(dist.isend, mine, (me + 1) % size), dist.P2POp(dist.irecv, left, (me - 1) % size)]
    for work in dist.batch_isend_irecv(around):
        work.wait()
    assert left[0] == left[-1] == (me - 1) % size
    # As torch 2.14 asks in it.
    assert not dist.group.WORLD._get_backend(torch.device("cpu")).supports_coalescing
    return between_two(me) if me < 2 else None


def between_two(me):
    import torch.distributed as dist

    group = dist.new_group([1, 0], use_local_synchronization=True)
    numbers = [torch.tensor([number]) for number in range(5)]
    saved = torch.ones(2, 2, requires_grad=True) * 3
    loss = saved.pow(2).sum()
    table, objects = torch.zeros(2, 4), [None, None]
    if me == 0:
        for number in numbers:
            dist.send(number, 1)
        works = [dist.isend(numbers[tag], 1, tag=tag) for tag in (3, 4)]
        for work in works:
            work.wait()
        dist.send(saved.t(), 1, group=group)
        dist.send(torch.arange(3).to(torch.uint16), 1)
        dist.send_object_list(["a", {"b": 1}], dst=1)
        loss.backward()  # what was sent has not changed
    else:
        for number in reversed(numbers):
            dist.recv(number, 0)
        for tag in (4, 3):
            dist.recv(numbers[tag], 0, tag=tag)
        work = dist.irecv(table[:, ::2], 0, group=group)
        work.get_future().wait()
        assert work.is_completed()
        short = torch.zeros(3, dtype=torch.uint16)
        dist.recv(short, 0)
        assert short.tolist() == [0, 1, 2]
        dist.recv_object_list(objects, src=0)
    with pytest.raises(psring.PsringError, match="3 elements of torch.float32.*4 elements of"):
        if me == 0:
            dist.send(torch.zeros(3), 1)
        else:
            dist.recv(torch.zeros(4), 0)
    with pytest.raises(ValueError, match=f"rank {me} sends to itself"):
        dist.isend(torch.zeros(1), me)
    return [number.item() for number in numbers], table.tolist(), objects


def test_one_rank_sends_to_another():
    sender, receiver, _ = run(transfers, size=3, env=master())
    assert sender == ([0, 1, 2, 3, 4], [[0] * 4] * 2, [None, None])
    assert receiver == ([4, 3, 2, 3, 4], [[3, 0, 3, 0]] * 2, ["a", {"b": 1}])


def early_receive():
    """It does not keep the futures of collectives, which its sender waits for."""
    import torch.distributed as dist

    join_group()
    x = torch.zeros(1)
    work = dist.irecv(x, 0) if dist.get_rank() == 1 else None
    total = dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()[0].item()
    if work is None:
        dist.send(torch.ones(1) * 7, 1)
    else:
        assert not work.is_completed() or x.item() == 7
        work.wait()
    return total, x.item()


def test_a_receive_may_be_called_long_before_its_send():
    assert run(early_receive, env=master()) == [(2, 0), (2, 7)]


def pipeline():
    """Gradients of two stages, and of the whole model in one process."""
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    join_group()
    me = dist.get_rank()
    torch.manual_seed(0)
    stages = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(2)]
    x, y = torch.randn(8, 4), torch.randn(8, 4)
    stage = PipelineStage(stages[me], me, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    schedule.step(x) if me == 0 else schedule.step(target=y)
    mine = [param.grad.clone() for param in stages[me].parameters()]
    for each in stages:
        each.zero_grad()
    torch.nn.functional.mse_loss(stages[1](stages[0](x)), y).backward()
    return all(torch.allclose(grad, param.grad, atol=1e-6) for grad, param in zip(mine, stages[me].parameters()))


def test_a_pipeline_of_stages_trains():
    pytest.importorskip("torch.distributed.pipelining")
    assert run(pipeline, env=master()) == [True, True]


def whole_numbers_and_roots():
    import torch.distributed as dist

    join_group()
    me, out = dist.get_rank(), []
    x, part = torch.tensor([me + 2, -3 * me]), torch.zeros(1, dtype=torch.int32)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    dist.reduce_scatter_tensor(part, torch.tensor([me + 2, -3 * me], dtype=torch.int32), op=dist.ReduceOp.AVG)
    out.append(x.tolist() == [2, -1] and part.item() == [2, -1][me])
    try:
        dist.all_reduce(torch.ones(1, dtype=torch.bool), op=dist.ReduceOp.AVG)
    except ValueError as error:
        out.append("convert the tensor to floats" in str(error))
    try:
        dist.all_reduce(torch.tensor([me]), op=dist.ReduceOp.BAND)
    except NotImplementedError as error:
        out.append("ReduceOp.BAND is not supported" in str(error))
    whole, real = torch.tensor([me + 2]), torch.full((3,), me + 1.0)
    dist.reduce(whole, 1, op=dist.ReduceOp.AVG)
    dist.reduce(real, 0)
    out.append(whole.item() == 2 and real.tolist() == [3 if me == 0 else 2] * 3)
    rows = [torch.zeros(2, 2) for _ in range(2)] if me == 1 else None
    dist.gather(torch.full((2, 2), float(me)), rows, dst=1)
    out.append(me == 0 or [row.sum().item() for row in rows] == [0, 4])
    mine = torch.zeros(3)
    dist.scatter(mine, [torch.arange(3.0) + 10 * i for i in range(2)] if me == 1 else None, src=1)
    out.append(mine.tolist() == [10 * me, 10 * me + 1, 10 * me + 2])
    gathered, scattered = [None, None] if me == 0 else None, [None]
    dist.gather_object({"rank": me}, gathered)
    dist.scatter_object_list(scattered, ["a", {"b": 1}] if me == 0 else None, src=0)
    out.append((me == 1 or gathered == [{"rank": 0}, {"rank": 1}]) and scattered == [["a", {"b": 1}][me]])
    return out


def test_averages_of_whole_numbers_and_what_has_a_root():
    env = master()
    for out in run(whole_numbers_and_roots, env=env):
        assert len(out) == 7 and all(out), out


class Spectral(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(3, 2, dtype=torch.complex64))

    def forward(self, x):
        return torch.fft.fft(x) @ self.weight


def complex_tensors():
    """DistributedDataParallel and collectives of complex numbers, of which torch hands over some as they are."""
    import torch.distributed as dist

    join_group()
    me = dist.get_rank()
    net, alone = Spectral(), Spectral()
    if me == 1:
        torch.nn.init.zeros_(net.weight)  # DDP makes it rank 0's
    batches = torch.arange(12.0).reshape(2, 2, 3)
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    ddp(batches[me]).abs().sum().backward()
    (sum(alone(batch).abs().sum() for batch in batches) / 2).backward()
    torch.testing.assert_close(net.weight.grad, alone.weight.grad)

    mine = torch.tensor([1 + 2j, 3 - 1j]) * (me + 1)
    total = mine.clone()
    dist.reduce(total, 1)
    part = torch.zeros(1, dtype=torch.complex64)
    dist.reduce_scatter_tensor(part, mine)
    gathered = [torch.zeros_like(mine) for _ in range(2)] if me == 1 else None
    dist.gather(mine, gathered, dst=1)
    assert me == 0 or total.tolist() == [3 + 6j, 9 - 3j]
    assert part.item() == [3 + 6j, 9 - 3j][me]
    assert me == 0 or torch.stack(gathered).tolist() == [[1 + 2j, 3 - 1j], [2 + 4j, 6 - 2j]]
    with pytest.raises(ValueError, match="ReduceOp.PRODUCT of torch.complex64 is not supported"):
        dist.reduce(total, 1, op=dist.ReduceOp.PRODUCT)
    return True


def test_complex_tensors():
    assert run(complex_tensors, env=master()) == [True, True]


def gather_in_inference_mode():
    """Whichever thread completes the collectives."""
    import torch.distributed as dist

    join_group()
    me = dist.get_rank()
    with torch.inference_mode():
        gathered, reduced = torch.zeros(2), torch.full((2, 3), float(me)).t()
        for work in [
            dist.all_gather_into_tensor(gathered, torch.full((1,), float(me)), async_op=True),
            dist.all_reduce(reduced, async_op=True),
        ]:
            work.get_future()
            time.sleep(0.5)  # until the group's thread has done it
            work.wait()
    usual = torch.zeros(2)
    work = dist.all_gather_into_tensor(usual, torch.full((1,), float(me)), async_op=True)
    with torch.inference_mode():
        work.wait()
    assert not usual.is_inference() and usual.tolist() == [0, 1]
    return gathered.tolist() == [0, 1] and reduced.tolist() == [[1, 1]] * 3


def test_collectives_in_inference_mode():
    assert run(gather_in_inference_mode, env=master()) == [True, True]


def await_file(path):
    while not os.path.exists(path):
        time.sleep(0.05)


def wait_for_a_late_rank(waited):
    import torch.distributed as dist

    join_group()
    late, numbers = dist.get_rank() == 0, torch.ones(2)
    dist.barrier()
    if late:
        await_file(waited)
    work = dist.all_reduce(numbers, async_op=True)
    if not late:
        with pytest.raises(RuntimeError, match="has not ended within 0.5 s"):
            work.wait(timedelta(seconds=0.5))
        open(waited, "w").close()
    work.wait(timedelta(seconds=30))
    return numbers.tolist()


def test_a_work_waits_no_longer_than_it_is_told(tmp_path):
    assert run(wait_for_a_late_rank, env=master(), args=(str(tmp_path / "waited"),)) == [[2, 2], [2, 2]]


def make_an_unsorted_group():
    import torch.distributed as dist

    join_group()
    with pytest.raises(NotImplementedError, match=r"new_group\(\[1, 0\], sort_ranks=False\) is not supported"):
        dist.new_group([1, 0], sort_ranks=False)
    return True


@pytest.mark.skipif(
    "sort_ranks" not in inspect.signature(torch.distributed.new_group).parameters, reason="sort_ranks is of newer torch"
)
def test_a_group_in_another_order_is_refused():
    assert run(make_an_unsorted_group, env=master()) == [True, True]


def load_a_whole_state():
    """A sharded model takes the state that rank 0 alone has."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    join_group()
    net = model()
    rank_0s = {name: value + 1 for name, value in net.state_dict().items()} if dist.get_rank() == 0 else {}
    fully_shard(net, mesh=init_device_mesh("cpu", (2,)))
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(net, rank_0s, options=options)
    return all(torch.equal(net.state_dict()[n].full_tensor(), p + 1) for n, p in model().state_dict().items())


@pytest.mark.skipif(
    not importlib.util.find_spec("torch.distributed.fsdp._fully_shard"), reason="fully_shard is of torch 2.6 and newer"
)
def test_a_sharded_model_takes_rank_0s_whole_state():
    env = master()
    assert run(load_a_whole_state, env=env) == [True, True]


def wait_in_what_is_chained():
    """As the hook of PowerSGD does within DDP."""
    import torch.distributed as dist

    join_group(timeout=timedelta(seconds=20))

    def twice(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    chained = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(twice).wait().item()
    waited = dist.all_reduce(torch.ones(1), async_op=True)
    both = waited.get_future().then(twice)
    waited.wait()
    return chained, both.wait().item()


def test_what_is_chained_to_a_future_may_wait_for_another_one():
    env = master()
    assert run(wait_in_what_is_chained, env=env, timeout=40) == [(4, 4)] * 2


def nobody_waits():
    import torch.distributed as dist

    join_group()
    me, parts = dist.get_rank(), [torch.zeros(2), torch.zeros(2)]
    sums = [torch.ones(3) for _ in range(5)]
    for numbers in sums:
        dist.all_reduce(numbers, async_op=True)
    dist.all_gather(parts, torch.full((2,), me + 1.0), async_op=True)  # what comes is copied into them at its end
    deadline = time.monotonic() + 30
    while parts[1].tolist() != [2, 2] and time.monotonic() < deadline:
        time.sleep(0.01)
    kept = [dist.all_reduce(torch.ones(1), async_op=True)]
    del kept[:]
    return [part.tolist() for part in parts], [numbers.tolist() for numbers in sums]


def test_what_nobody_waits_for_ends_all_the_same():
    assert run(nobody_waits, env=master()) == [([[1, 1], [2, 2]], [[2, 2, 2]] * 5)] * 2


def functional_collectives():
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    join_group()
    me, world, x = dist.get_rank(), dist.group.WORLD, torch.arange(2.0) + dist.get_rank()
    out = [functional.all_gather_tensor(x, 0, world), functional.reduce_scatter_tensor(x, "sum", 0, world)]
    out += functional.all_gather_into_tensor_coalesced([x, x.half()], world)
    out += functional.reduce_scatter_tensor_coalesced([x, 2 * x], "avg", [0, 0], world)
    mine = torch.ones(1, requires_grad=True)
    gathered = functional.all_gather_tensor_autograd(mine, 0, world)
    ((me + 1) * gathered).sum().backward()
    whole = distribute_tensor(torch.arange(4.0), init_device_mesh("cpu", (2,)), [Shard(0)])
    out += [mine.grad, (2 * whole).full_tensor()]
    return [(o + 0).tolist() for o in out]


@pytest.mark.skipif(not importlib.util.find_spec("torch.distributed.tensor"), reason="it is of torch 2.5 and newer")
def test_functional_collectives_and_what_dtensor_makes_of_them():
    env = master()
    for rank, out in enumerate(run(functional_collectives, env=env)):
        assert out[:2] == [[0, 1, 1, 2], [1 + 2 * rank]]
        assert out[2:4] == [[0, 1, 1, 2]] * 2
        assert out[4:6] == [[0.5 + rank], [1 + 2 * rank]]
        assert out[6:] == [[3], [0, 2, 4, 6]]


def sparse_under_ddp():
    """Of two ranks' own words, against one process that has both's."""
    import torch.distributed as dist

    join_group()

    def train(wrap, words):
        torch.manual_seed(0)
        net = wrap(torch.nn.Sequential(torch.nn.Embedding(20, 3, sparse=True), torch.nn.Linear(3, 1)))
        opt = torch.optim.SGD(net.parameters(), lr=0.5)
        for step in range(4):
            opt.zero_grad()
            net((words + step) % 20).square().mean().backward()
            opt.step()
        return weights(net)

    words = torch.tensor([[3, 3, 7, 1], [7, 12, 19, 0]])
    ddp = train(torch.nn.parallel.DistributedDataParallel, words[dist.get_rank()])
    mine = torch.sparse_coo_tensor([[dist.get_rank(), 4]], [1.0, 2.0], (5,))
    mean = mine.clone()
    dist.all_reduce(mine)
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    with pytest.raises(ValueError, match="SUM or AVG"):
        dist.all_reduce(mean.clone(), op=dist.ReduceOp.MAX)
    return (
        torch.allclose(ddp, train(lambda net: net, words), atol=1e-6),
        mine.to_dense().tolist() == [1, 1, 0, 0, 4] and mean.to_dense().tolist() == [0.5, 0.5, 0, 0, 2],
    )


def test_ddp_trains_sparse_embeddings():
    env = master()
    assert run(sparse_under_ddp, env=env) == [(True, True)] * 2


def a_rank_fails_while_ddp_waits():
    import torch.distributed as dist

    join_group()
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    for step in range(4):
        loss = net(torch.ones(1, 2)).sum()
        if step == 3 and dist.get_rank() == 1:
            time.sleep(1)  # rank 0 waits in this step meanwhile
            raise RuntimeError("out of luck")
        loss.backward()


def test_a_failure_within_ddp_is_an_error_of_pythons():
    env = master()
    with pytest.raises(AssertionError, match="rank 0 ended with 1\n(.|\n)*out of luck"):
        run(a_rank_fails_while_ddp_waits, env=env)


def fewer_batches_on_rank_1(then):
    """Under torch's timeout of 30 minutes."""
    import torch.distributed as dist

    join_group()
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    with pytest.raises(RuntimeError) as raised:
        for _ in range(3 - dist.get_rank()):
            net(torch.ones(3, 4)).sum().backward()
        dist.barrier() if then == "barrier" else dist.all_reduce(torch.ones(1))
    return str(raised.value)


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in waits for ever")
@pytest.mark.parametrize("then, calls", [
    ("barrier", r"rank 0 waits for allreduce 'group0\.allreduce.*, rank 1 waits for allreduce 'group0\.barrier"),
    ("allreduce", r"allreduce 'group0\.allreduce.*: rank 0 brings 10 float32, rank 1 brings 1 float32"),
])  # fmt: skip
def test_ranks_with_other_numbers_of_batches_under_ddp_are_told_so_soon(then, calls):
    for said in run(fewer_batches_on_rank_1, env=master(), args=(then,)):
        assert re.search(calls + r".*A rank that has no more batches calls join\(\)", said), said


def late_under_a_timeout(waited):
    import torch.distributed as dist

    join_group(timeout=timedelta(seconds=4))
    if dist.get_rank() == 1:
        await_file(waited)
    with pytest.raises(RuntimeError, match="not called within 4s by worker 1.*with model.join().*a longer timeout"):
        dist.barrier()
    open(waited, "w").close()


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in has no timeout")
def test_the_timeout_of_init_process_group_is_the_jobs(tmp_path):
    run(late_under_a_timeout, env=master(), args=(str(tmp_path / "waited"),))


def over_gloo():
    import psring.torch as ps

    ps.init()
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net, bucket_mb=0.0001)
    train(net, opt)
    return [ps.mode() == "ddp", same(net, reference(sgd)), ps.sum(1) == 2]


def test_mode_ddp_trains_over_gloo():
    for out in run(over_gloo, mode="ddp"):
        assert all(out), out


def test_mode_ddp_ends_where_a_rank_is_stopped(tmp_path):
    if not os.environ.get("PSRING_LIBRARY"):
        pytest.skip("PSRING_LIBRARY is not set")
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, torch, psring.torch as ps\n"
        "ps.init()\n"
        "net = torch.nn.Linear(2, 2)\n"
        "opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)\n"
        "for step in range(100):\n"
        "    if ps.rank() == 1 and step == 3:\n"
        "        os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    net(torch.ones(1, 2)).sum().backward()\n"
        "    opt.step()\n"
    )
    processes = start(str(script), 2, mode="ddp")
    try:
        _, err = processes[0].communicate(timeout=120)
        assert processes[0].returncode == 1
        assert "lost worker 1 (host " in err.strip().splitlines()[-1], err
    finally:
        for process in processes:
            process.kill()


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set")
@pytest.mark.parametrize("end, timeout, says", [
    ("os.kill(os.getpid(), signal.SIGKILL)", 60, "psring: lost worker 1 (host "),
    ("sys.exit()", 3, "All ranks make as many steps"),  # after the step's timeout, and not Gloo's of 30 minutes
])  # fmt: skip
def test_mode_ddp_ends_where_a_rank_does(tmp_path, end, timeout, says):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys, torch, psring.torch as ps\n"
        f"ps.init(step_timeout_s={timeout})\n"
        "net = torch.nn.Linear(2, 2)\n"
        "opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)\n"
        "for step in range(100):\n"
        "    if ps.rank() == 1 and step == 3:\n"
        f"        {end}\n"
        "    net(torch.ones(1, 2)).sum().backward()\n"
        "    opt.step()\n"
    )
    (code, _, err), _ = run_script(str(script), 2, mode="ddp")
    assert code == 1 and says in err.strip().splitlines()[-1], err


def listening():
    """The addresses at which this process listens, as /proc shows them."""
    mine = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            mine.add(os.readlink(f"/proc/self/fd/{number}"))
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as file:
            for _, local, _, state, *_, inode in (line.split()[:10] for line in file.readlines()[1:]):
                if state == "0A" and f"socket:[{inode}]" in mine:
                    found.append(local.split(":")[0])
    return found


def where_ddp_listens():
    import torch.distributed as dist

    import psring.torch as ps

    ps.init()
    interfaces, init = [], dist.init_process_group
    dist.init_process_group = lambda *args, **more: (
        interfaces.append(os.environ.get("GLOO_SOCKET_IFNAME")), init(*args, **more)
    )  # fmt: skip
    before = len(listening())
    net = model()
    opt = ps.DistributedOptimizer(sgd(net), model=net)
    train(net, opt)
    ps.barrier()
    found = listening()
    ps.barrier()
    return found, len(found) - before, interfaces, os.environ.get("GLOO_SOCKET_IFNAME")


@pytest.mark.skipif(
    "master_listen_fd" not in (torch.distributed.TCPStore.__init__.__doc__ or ""), reason="this torch takes no listener"
)
def test_mode_ddp_listens_on_loopback_alone_where_the_job_is_on_one_host():
    for rank, (found, more, interfaces, after) in enumerate(run(where_ddp_listens, mode="ddp")):
        assert set(found) == {"0100007F"}, found
        assert more == 2 - rank and interfaces == ["lo"] and after is None


def over_gloo_of_an_older_torch():
    import torch.distributed as dist

    class Store(dist.TCPStore):
        def __init__(self, *args, **more):
            assert set(more) <= {"wait_for_workers"}
            super().__init__(*args, **more)

    dist.TCPStore = Store
    return over_gloo()


def test_mode_ddp_trains_where_torch_takes_no_listener():
    for out in run(over_gloo_of_an_older_torch, mode="ddp"):
        assert all(out), out


def test_mode_ddp_keeps_to_the_interface_that_the_user_names():
    ranks = run(where_ddp_listens, mode="ddp", env={"GLOO_SOCKET_IFNAME": "lo,lo"})
    assert [(interfaces, after) for _, _, interfaces, after in ranks] == [(["lo,lo"], "lo,lo")] * 2


def in_mode_ps():
    import psring.torch as ps

    ps.init(sync="ssp", staleness=3)
    net = model()
    net.register_buffer("seen", torch.tensor(float(ps.rank())))
    opt = ps.DistributedOptimizer(sgd(net), model=net)
    at_start = net.seen.item() == 0
    net.seen += 2 * ps.rank()
    train(net, opt)
    own = net.seen.item() == 2 * ps.rank()  # a rank waits for no other one
    opt.synchronize_parameters()
    own = own and at_start and net.seen.item() == 0
    error = ""
    try:
        ps.DistributedOptimizer(sgd(net), update="local")
    except ValueError as reason:
        error = str(reason)
    everybody = ps.allgather(weights(net).reshape(1, -1))
    return [own, opt._psring.settings.fused, 'update="fused"' in error, torch.equal(everybody[0], everybody[1])]


def test_ssp_is_fused():
    for out in run(in_mode_ps, mode="ps"):
        assert all(out), out


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
