"""psring's own calls run no code of other ranks; only the calls for any object unpickle."""

import os
import pickle

import pytest
import torch

import psring.torch as ps
from ranks import run


class Code:
    """Unpickling it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def refuse(*_, **__):
    raise AssertionError("psring's own calls unpickle")


def of_optimizers():
    """Each update's steps and state, where pickle.loads is an error."""
    pickle.loads = refuse
    ps.init()
    out = []
    for update in ["local"] if ps.mode() == "ddp" else ["local", "fused"]:
        net = torch.nn.Linear(3, 2)
        opt = ps.DistributedOptimizer(torch.optim.Adam(net.parameters(), lr=0.1), model=net, update=update)
        for _ in range(2):
            opt.zero_grad()
            net(torch.ones(1, 3)).sum().backward()
            opt.step()
        if update == "fused":
            out.append(len(opt.state_dict()["state"]))
        ps.broadcast_optimizer_state(opt)
    with pytest.raises(AssertionError, match="unpickle"):
        ps.allgather_object(1)
    return out


@pytest.mark.parametrize("mode, states", [("ring", [2]), ("ps", [2]), ("ddp", [])])
def test_optimizers_run_no_code_of_other_ranks(mode, states):
    assert run(of_optimizers, mode=mode) == [states] * 2


GROUP = {
    "betas": (0.9, 0.999), "steps": [1, 2**70, True, None], "by": {0: "a", (1, 2): -0.0, None: float("inf")},
    "dtype": torch.bfloat16, "size": torch.Size([2, 3]), "device": torch.device("cpu"), "z": 1j, "set": {1}, "b": b"\0",
}  # fmt: skip


def state_with_every_type():
    import numpy

    ps.init()
    net = torch.nn.Linear(3, 2)
    opt = torch.optim.Adam(net.parameters(), lr=numpy.float64(0.1) if ps.rank() == 0 else 0.2)
    if ps.rank() == 0:
        net(torch.ones(1, 3)).sum().backward()
        opt.step()
        opt.param_groups[0].update(GROUP)
    ps.broadcast_optimizer_state(opt)
    lr = opt.param_groups[0]["lr"]
    got = {key: opt.param_groups[0][key] for key in GROUP}
    return type(lr).__name__, lr, repr(got) == repr(GROUP), len(opt.state), opt.state[net.weight]["step"].item()


def test_an_optimizers_state_keeps_its_types():
    assert run(state_with_every_type) == [("float64", 0.1, True, 2, 1.0)] * 2


def state_with_code():
    from psring.torch import functions

    path = os.environ["PSRING_TEST_FOLDER"]
    ps.init()
    opt = torch.optim.SGD(torch.nn.Linear(3, 2).parameters(), lr=0.1)
    opt.param_groups[0]["code"] = Code(path)
    says = []
    try:
        if ps.rank() == 0:
            ps.broadcast_optimizer_state(opt)
    except pickle.UnpicklingError as error:
        says.append(str(error))
    # A rank that does not check what it sends.
    if ps.rank() == 0:
        functions.broadcast_bytes(pickle.dumps(Code(path)), 0, "state", ps.global_process_set)
    else:
        try:
            functions._broadcast_plain(None, 0, "state", ps.global_process_set)
        except pickle.UnpicklingError as error:
            says.append(str(error))
    return says


def test_an_optimizers_state_brings_no_code(tmp_path):
    path = tmp_path / "made"
    for [says] in run(state_with_code, env={"PSRING_TEST_FOLDER": str(path)}):
        assert "a posix.mkdir" in says and "Send others by broadcast_object" in says
    assert not path.exists()


def half_a_row():
    """Rank 1 sends what no tensor of its kind has."""
    import ctypes

    from psring import collectives as memory

    ps.init()
    data = (ctypes.c_char * 4100)()
    address = ctypes.addressof(data)
    says = []
    for name, size in (("gather", 4007), ("alltoall", 4004)):
        if ps.rank() == 1 and name == "gather":
            memory.start_allgather(name, address, size, "float32[*,1000]", keep=data).wait()
        elif ps.rank() == 1:
            memory.start_alltoall(name, address, [size - 3, 3], "float32[*,1000]", keep=data).wait()
        else:
            call = ps.allgather if name == "gather" else ps.alltoall
            try:
                call(torch.ones(2, 1000), name=name)
            except ps.PsringError as error:
                says.append(str(error))
    return says


def test_no_rank_writes_past_the_end_of_anothers_tensor():
    says, _ = run(half_a_row)
    assert says == [
        "rank 1 of the set sent 4007 bytes, no whole number of rows of 4000 bytes",
        "rank 1 of the set sent 4001 bytes, no whole number of rows of 4000 bytes",
    ]


def rows_outside():
    """Rank 1 sends a gradient of a row that the parameter does not have."""
    from psring.torch import sparse

    ps.init()
    gather = sparse.allgather_async
    if ps.rank() == 1:
        sparse.allgather_async = lambda rows, *more: gather(rows + 10**9 if rows.dtype == torch.int64 else rows, *more)
    table = torch.nn.Embedding(4, 2, sparse=True)
    opt = ps.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), model=table)
    with pytest.raises(ps.PsringError) as error:
        table(torch.tensor([1])).sum().backward()
        opt.step()
    return str(error.value)


def test_rows_of_sparse_gradients_lie_in_the_parameter():
    assert run(rows_outside) == ["another rank sent a gradient of weight with rows outside of [4, 2]"] * 2
