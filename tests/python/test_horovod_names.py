"""The names of Horovod's that a script uses, in both modes: one job of two ranks each."""

import inspect

import pytest
import torch

import psring.torch as hvd
from ranks import run

# Horovod's arguments, in its order: scripts give some of them by position.
ALLREDUCE = ["tensor", "average", "name", "compression", "op", "prescale_factor", "postscale_factor", "process_set"]
IN_PLACE = [argument for argument in ALLREDUCE if argument != "compression"]
GROUPED, GROUPED_IN_PLACE = ["tensors", *ALLREDUCE[1:]], ["tensors", *IN_PLACE[1:]]
SCATTER = ["name", "compression", "op", "process_set", "prescale_factor", "postscale_factor"]
SCATTER_ASYNC = [argument for argument in SCATTER if argument != "compression"]
SIGNATURES = {
    "shutdown": [], "is_initialized": [], "rank": [], "size": [], "local_rank": [], "local_size": [],
    "cross_rank": [], "cross_size": [], "mpi_built": [], "mpi_enabled": [], "mpi_threads_supported": [],
    "gloo_built": [], "gloo_enabled": [], "nccl_built": [], "cuda_built": [], "rocm_built": [], "ccl_built": [],
    "ddl_built": [], "barrier": ["process_set"], "join": ["device"], "poll": ["handle"], "synchronize": ["handle"],
    "allreduce": ALLREDUCE, "allreduce_": IN_PLACE, "allreduce_async": IN_PLACE, "allreduce_async_": IN_PLACE,
    "grouped_allreduce": GROUPED, "grouped_allreduce_": GROUPED_IN_PLACE,
    "grouped_allreduce_async": GROUPED_IN_PLACE, "grouped_allreduce_async_": GROUPED_IN_PLACE,
    "allgather": ["tensor", "name", "process_set"], "allgather_async": ["tensor", "name", "process_set"],
    "grouped_allgather": ["tensors", "name", "process_set"], "grouped_allgather_async": ["tensors", "name", "process_set"],
    "allgather_object": ["obj", "name"],
    "broadcast": ["tensor", "root_rank", "name", "process_set"],
    "broadcast_": ["tensor", "root_rank", "name", "process_set"],
    "broadcast_async": ["tensor", "root_rank", "name", "process_set"],
    "broadcast_async_": ["tensor", "root_rank", "name", "process_set"],
    "broadcast_object": ["obj", "root_rank", "name", "process_set"],
    "broadcast_parameters": ["params", "root_rank"], "broadcast_optimizer_state": ["optimizer", "root_rank", "model"],
    "alltoall": ["tensor", "splits", "name", "process_set"], "alltoall_async": ["tensor", "splits", "name", "process_set"],
    "reducescatter": ["tensor", *SCATTER], "reducescatter_async": ["tensor", *SCATTER_ASYNC],
    "grouped_reducescatter": ["tensors", *SCATTER], "grouped_reducescatter_async": ["tensors", *SCATTER_ASYNC],
    "DistributedOptimizer": [
        "optimizer", "named_parameters", "compression", "backward_passes_per_step", "op", "gradient_predivide_factor",
        "num_groups", "groups", "sparse_as_dense", "process_set",
    ],
    "SyncBatchNorm": ["num_features", "eps", "momentum", "affine", "track_running_stats"],
    "ProcessSet": ["ranks"], "add_process_set": ["process_set"], "remove_process_set": ["process_set"],
}  # fmt: skip


def test_horovods_arguments_are_there_and_in_its_order():
    for name, arguments in SIGNATURES.items():
        found = list(inspect.signature(getattr(hvd, name)).parameters)
        assert found[: len(arguments)] == arguments, name
    assert {"comm", "process_sets"} <= set(inspect.signature(hvd.init).parameters)


def raised(call):
    try:
        call()
    except Exception as error:
        return error
    return None


def mine():
    return torch.tensor([hvd.rank() + 1.0, -1.0 - hvd.rank()])


def reductions():
    """What every form of allreduce makes of [1, -1] and [2, -2]."""
    ways = {
        "Sum": {"op": hvd.Sum}, "Average": {"op": hvd.Average}, "Min": {"op": hvd.Min}, "Max": {"op": hvd.Max},
        "Product": {"op": hvd.Product}, "default": {}, "average": {"average": True}, "not average": {"average": False},
        "scaled": {"op": hvd.Sum, "prescale_factor": 0.5, "postscale_factor": 4.0},
    }  # fmt: skip
    out = {}
    for name, way in ways.items():
        kept, x, y, z, g, h = mine(), mine(), mine(), mine(), mine(), mine()
        results = [
            hvd.allreduce(kept, **way), hvd.allreduce_(x, **way), hvd.synchronize(hvd.allreduce_async(kept, **way)),
            hvd.synchronize(hvd.allreduce_async_(y, **way)), *hvd.grouped_allreduce([kept, kept], **way),
            *hvd.grouped_allreduce_([z], **way), *hvd.synchronize(hvd.grouped_allreduce_async([kept], **way)),
            *hvd.synchronize(hvd.grouped_allreduce_async_([g, h], **way)), x, y, z, g, h,
        ]  # fmt: skip
        # reducescatter reduces in the same ways; element i is rank i's.
        way.pop("average", None)
        if name != "not average":
            parts = [
                hvd.reducescatter(kept, **way), hvd.synchronize(hvd.reducescatter_async(kept, **way)),
                *hvd.grouped_reducescatter([kept], **way), *hvd.synchronize(hvd.grouped_reducescatter_async([kept], **way)),
            ]  # fmt: skip
            results += [hvd.allgather(part) for part in parts]
        out[name] = [result.tolist() for result in results]
        assert torch.equal(kept, mine())
    return out


def moves():
    """Forms of the collectives that move rows; the names say what is compared."""
    me = hvd.rank()
    rows = torch.full((me + 1, 2), float(me))
    strided = (torch.arange(6).reshape(2, 3) + 10 * me).t()
    in_place = hvd.synchronize(hvd.broadcast_async_(strided, 1))
    received, counts = hvd.synchronize(hvd.alltoall_async(torch.arange(3) + 10 * me, splits=torch.tensor([1, 2])))
    late = None
    if me == 0:
        late = hvd.allreduce_async(torch.ones(1), name="late")
        before = hvd.poll(late)
    hvd.barrier()
    if me == 1:
        late, before = hvd.allreduce_async(torch.ones(1), name="late"), False
    twice = [hvd.synchronize(late), hvd.synchronize(late)]
    return {
        "allgather_async": hvd.synchronize(hvd.allgather_async(rows)).tolist(),
        "grouped_allgather": [t.tolist() for t in hvd.grouped_allgather([rows, torch.tensor(me)])],
        "grouped_allgather_async": [t.tolist() for t in hvd.synchronize(hvd.grouped_allgather_async([rows]))],
        "broadcast_async": hvd.synchronize(hvd.broadcast_async(torch.tensor(me), 1)).item(),
        "broadcast_": hvd.broadcast_(torch.tensor([me]), root_rank=1).tolist(),
        "broadcast_async_": [in_place is strided, strided.tolist()],
        "alltoall_async": hvd.synchronize(hvd.alltoall_async(torch.arange(4) + 10 * me)).tolist(),
        "splits": [received.tolist(), counts.tolist()],
        "poll": [before, hvd.poll(late), twice[0].item() == twice[1].item() == 1],
        "objects": hvd.allgather_object({"rank": me}, name="who"),
        "object": hvd.broadcast_object((me, "x") if me else None, root_rank=1),
    }


def gradients():
    """Of a sum that each rank multiplies by its rank + 1."""
    me, out = hvd.rank(), {}
    for name, call in {
        "scaled": lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5),
        "average": lambda x: hvd.allreduce(x, average=True),
        "compressed": lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16),
        "grouped": lambda x: hvd.grouped_allreduce([x, x], op=hvd.Sum)[1],
        "gathered": lambda x: hvd.grouped_allgather([x])[0],
        "scattered": lambda x: hvd.grouped_reducescatter([x], op=hvd.Sum)[0],
        "split": lambda x: hvd.alltoall(x, splits=[2, 0] if me else [0, 2])[0],
    }.items():
        x = mine().requires_grad_()
        (call(x) * (me + 1)).sum().backward()
        out[name] = x.grad.tolist()
    for op in (hvd.Min, hvd.Max, hvd.Product):
        error = raised(lambda: hvd.allreduce(mine().requires_grad_(), op=op).sum().backward())
        out[op.name] = isinstance(error, NotImplementedError)
    return out


def place():
    places = [hvd.is_initialized(), hvd.local_rank() == hvd.rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
    built = [hvd.gloo_built(), hvd.gloo_enabled(), hvd.mpi_threads_supported(), hvd.nccl_built() == hvd.cuda_built()]
    other = [hvd.mpi_built(), hvd.mpi_enabled(), hvd.rocm_built(), hvd.ccl_built(), hvd.ddl_built()]
    return places, all(built), any(other)


def sets():
    """A set of each rank alone, and one of both that goes again."""
    me = hvd.rank()
    alone = [hvd.add_process_set([0]), hvd.add_process_set(hvd.ProcessSet([1]))]
    both = hvd.add_process_set([0, 1])
    sums = [hvd.allreduce(mine(), op=hvd.Sum, process_set=s)[0].item() for s in (alone[me], both)]
    error = raised(lambda: hvd.allreduce(mine(), process_set=alone[1 - me]))
    gone = [both.process_set_id, hvd.remove_process_set(both), hvd.remove_process_set(both), both.process_set_id]
    return sums, alone[me].included(), alone[1 - me].included(), "not part of" in str(error), gone


def refusals():
    """(kind, text) of each error; the job lives."""
    net = torch.nn.Linear(2, 2)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    mismatch = raised(lambda: hvd.allreduce(torch.ones(1 + hvd.rank()), name="mismatch"))
    assert isinstance(mismatch, hvd.HorovodInternalError)  # what a script catches
    errors = [raised(call) for call in (
        lambda: hvd.allreduce(mine(), op=hvd.Adasum), lambda: hvd.grouped_allreduce([mine()], op=hvd.Adasum),
        lambda: hvd.reducescatter(mine(), op=hvd.Adasum), lambda: hvd.DistributedOptimizer(sgd, op=hvd.Adasum),
        lambda: hvd.init(comm=[0, 1]), lambda: hvd.init([0, 1]), lambda: hvd.start_timeline,
        lambda: hvd.allreduce(3.0), lambda: hvd.DistributedOptimizer(net), lambda: hvd.DistributedOptimizer(type(sgd)),
        lambda: hvd.DistributedOptimizer(sgd, named_parameters=torch.nn.Linear(2, 2).named_parameters()),
    )]  # fmt: skip
    return [f"{type(error).__name__}: {error}" for error in errors]


def optimizer():
    """Horovod's classic script, with all of its arguments; what it must end with is plain torch on both batches."""
    def make():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        return net, opt, torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)

    def loss(net, step, rank):
        return net(torch.randn(5, 3, generator=torch.Generator().manual_seed(10 * step + rank))).pow(2).mean()

    plain, its, schedule = make()
    for step in range(3):
        its.zero_grad()
        (sum(loss(plain, step, rank) for rank in range(2)) / 2).backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        its.step()
        schedule.step()
    out = []
    for groups in ({"num_groups": 2}, {"groups": "by hand"}):
        net, opt, schedule = make()
        before = [p.detach().clone() for p in net.parameters()]
        if "groups" in groups:
            groups = {"groups": [list(net[0].parameters()), list(net[2].parameters())]}
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(opt, root_rank=0, model=net)
        out.append(all(torch.equal(p, q) for p, q in zip(net.parameters(), before)) and not opt.state)  # no step
        wrapped = hvd.DistributedOptimizer(
            opt, net.named_parameters(), hvd.Compression.none, 1, hvd.Average, gradient_predivide_factor=2.0, **groups
        )
        out.append(wrapped is opt and isinstance(opt, torch.optim.SGD) and schedule.optimizer is opt)
        for step in range(3):
            opt.zero_grad(set_to_none=step != 1)
            loss(net, step, hvd.rank()).backward()
            opt.synchronize()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            with opt.skip_synchronize():
                opt.step()
            schedule.step()
        out += [torch.allclose(p, q, atol=2e-6) for p, q in zip(net.parameters(), plain.parameters())]
    # What was not reduced yet stays this rank's own within skip_synchronize().
    with opt.no_sync():
        opt.zero_grad()
        loss(net, 3, hvd.rank()).backward()
    own = net[0].weight.grad.clone()
    with opt.skip_synchronize():
        opt.step()
    opt.set_backward_passes_per_step(2)
    return out + [torch.equal(net[0].weight.grad, own)]


PARTS = (reductions, moves, gradients, place, sets, refusals, optimizer)


def all_parts():
    hvd.init()
    return {part.__name__: part() for part in PARTS}


@pytest.fixture(scope="module", params=["ring", "ps"])
def ranks(request):
    return run(all_parts, mode=request.param, env={"PSRING_SERVERS": "2"})


def test_all_forms_reduce(ranks):
    expected = {
        "Sum": [3, -3], "Average": [1.5, -1.5], "Min": [1, -2], "Max": [2, -1], "Product": [2, 2],
        "default": [1.5, -1.5], "average": [1.5, -1.5], "not average": [3, -3], "scaled": [6, -6],
    }  # fmt: skip
    for out in ranks:
        for name, value in expected.items():
            assert all(result == value for result in out["reductions"][name]), (name, out["reductions"][name])


def test_all_forms_move(ranks):
    rows = [[0, 0], [1, 1], [1, 1]]
    for me, out in enumerate(ranks):
        assert out["moves"] == {
            "allgather_async": rows, "grouped_allgather": [rows, [0, 1]], "grouped_allgather_async": [rows],
            "broadcast_async": 1, "broadcast_": [1], "broadcast_async_": [True, [[10, 13], [11, 14], [12, 15]]],
            "alltoall_async": [[0, 1, 10, 11], [2, 3, 12, 13]][me],
            "splits": [[[0, 10], [1, 1]], [[1, 2, 11, 12], [2, 2]]][me],
            "poll": [False, True, True], "objects": [{"rank": 0}, {"rank": 1}], "object": (1, "x"),
        }  # fmt: skip


def test_gradients(ranks):
    for me, out in enumerate(ranks):
        assert out["gradients"] == {
            "scaled": [1.5, 1.5], "average": [1.5, 1.5], "compressed": [1.5, 1.5], "grouped": [3, 3],
            "gathered": [1.5, 1.5], "scattered": [2, 4], "split": [[2, 2], [1, 1]][me],
            "Min": True, "Max": True, "Product": True,
        }  # fmt: skip


def test_where_this_is_and_what_was_built(ranks):
    for out in ranks:
        assert out["place"] == ([True, True, 2, 0, 1], True, False)


def test_process_sets(ranks):
    for me, out in enumerate(ranks):
        assert out["sets"] == ([me + 1, 3], True, False, True, [3, True, False, None])


def test_refusals_say_what_to_do(ranks):
    adasum = "NotImplementedError: op=Adasum is not implemented: use Average, or Sum"
    words = [adasum] * 4 + ["ValueError: init(comm=...) is not supported"] * 2 + [
        "AttributeError: psring.torch has no start_timeline: ", "TypeError: this takes a tensor, not float",
        "TypeError: DistributedOptimizer takes an optimizer such as torch.optim.SGD(...), not Linear",
        "TypeError: DistributedOptimizer takes an optimizer such as torch.optim.SGD(...), not the class SGD",
        "ValueError: parameter 0 of param_groups[0] (shape [2, 2]) is not among those of model= or named_parameters=",
    ]  # fmt: skip
    for out in ranks:
        assert len(out["refusals"]) == len(words)
        assert all(said.startswith(word) for said, word in zip(out["refusals"], words)), out["refusals"]


def test_the_classic_script_trains_as_plain_torch(ranks):
    for out in ranks:
        assert all(out["optimizer"]), out["optimizer"]
