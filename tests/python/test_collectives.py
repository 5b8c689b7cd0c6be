"""Collectives in both modes; each job of two ranks runs all functions of TOGETHER."""

import os

import numpy
import pytest
import torch

import psring
import psring.torch as ps
from psring.collectives import auto_name
from ranks import run

TOGETHER = {}


def together(function):
    TOGETHER[function.__name__] = function
    return function


def all_together():
    ps.init()
    return {name: function() for name, function in TOGETHER.items()}


@pytest.fixture(scope="module", params=["ring", "ps"])
def results(request):
    """By function, what it returned, by rank."""
    ranks = run(all_together, mode=request.param)
    return {name: [rank[name] for rank in ranks] for name in TOGETHER}


@together
def every_dtype():
    out = {}
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
                  torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool):  # fmt: skip
        x = torch.ones(3, 2).to(dtype) if dtype == torch.bool else (torch.ones(3, 2) * (ps.rank() + 1)).to(dtype)
        out[str(dtype)] = (ps.allreduce(x, op=ps.Sum).tolist(), ps.allreduce(x, op=ps.Max).tolist())
    out["scalar"] = ps.allreduce(torch.tensor(float(ps.rank()))).item()
    strided = torch.arange(6.0).reshape(2, 3).t()
    out["strided"] = torch.equal(ps.allreduce(strided), strided)
    ps.allreduce_(strided, op=ps.Sum)
    out["in place"] = torch.equal(strided, 2 * torch.arange(6.0).reshape(2, 3).t())
    out["scaled"] = ps.allreduce(torch.ones(1), op=ps.Sum, prescale_factor=0.5, postscale_factor=4.0).item()
    out["fp16"] = ps.allreduce(torch.ones(2), compression=ps.Compression.fp16).dtype == torch.float32
    return out


@together
def moved_dtypes():
    """Of dtypes in which nothing is summed."""
    names = ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"]
    moved = {}
    for dtype in [getattr(torch, name) for name in names if hasattr(torch, name)]:
        x = torch.full((2, 3), ps.rank() + 1.0).to(dtype).t()
        tensors = [ps.allgather(x), ps.broadcast(x, 1), ps.alltoall(torch.full((2,), ps.rank() + 1.0).to(dtype))]
        moved[str(dtype)] = [t.to(torch.float32).tolist() for t in tensors if t.dtype == dtype]
    with pytest.raises(TypeError, match="allgather of torch.complex64 is not supported: use torch.view_as_real"):
        ps.allgather(torch.zeros(1, dtype=torch.complex64))
    return moved


class OnGpu(numpy.ndarray):
    """As JAX's arrays on a GPU: NumPy reads it, and nobody gets its memory."""


def memory_of(value):
    if isinstance(value, OnGpu):
        raise BufferError("Python buffer protocol is only defined for CPU buffers.")
    return memoryview(value)


@together
def arrays_on_gpus():
    psring.collectives.memoryview = memory_of
    value = (numpy.arange(3.0) + ps.rank()).view(OnGpu)
    said = []
    for call in (psring.allreduce_, psring.broadcast_):
        try:
            call(value)
        except ValueError as error:
            said.append(str(error))
    results = psring.mean(value).tolist(), psring.sum(value).tolist(), type(psring.mean(value)), said
    del psring.collectives.memoryview
    return results


def test_means_of_arrays_on_gpus_are_numpys(results):
    for mean, total, kind, said in results["arrays_on_gpus"]:
        assert mean == [0.5, 1.5, 2.5] and total == [1, 3, 5] and kind is numpy.ndarray
        assert len(said) == 2 and all("in place cannot use the memory of this OnGpu: pass" in text for text in said)


def test_what_only_moves_takes_other_dtypes(results):
    for moved in results["moved_dtypes"]:
        assert moved, "this torch has none"
        for gathered, root, exchanged in moved.values():
            assert gathered == [[1, 1]] * 3 + [[2, 2]] * 3
            assert root == [[2, 2]] * 3
            assert exchanged == [1, 2]


@together
def one_name_twice():
    mine = [torch.full((1 + i,), float(10**i)) for i in range(3)]
    started = [ps.allreduce_async_(tensor, op=ps.Sum, name="once") for tensor in mine]
    for handle in started if ps.rank() else reversed(started):
        ps.synchronize(handle)
    return [tensor.tolist() for tensor in mine]


def test_operations_of_one_name_in_flight_meet_in_the_order_of_their_start(results):
    size = len(results["one_name_twice"])
    assert results["one_name_twice"] == [[[10**i * size] * (1 + i) for i in range(3)]] * size


def test_allreduce_takes_every_dtype_and_layout(results):
    for out in results["every_dtype"]:
        for dtype, (total, most) in ((k, v) for k, v in out.items() if k.startswith("torch.")):
            if dtype == "torch.bool":
                assert total == most == [[True, True]] * 3
            else:
                assert total == [[3, 3]] * 3 and most == [[2, 2]] * 3, dtype
        assert out["scalar"] == 0.5 and out["scaled"] == 4.0
        assert out["strided"] and out["in place"] and out["fp16"]


@together
def whole_buffers():
    import array

    me = ps.rank()
    floats = array.array("f", [1.0 + me, 2.0, 3.0])
    out = {"gathered": [array.array("f", part).tolist() for part in psring.allgather_bytes(floats)]}
    out["broadcast"] = array.array("f", psring.broadcast_bytes(floats, 1)).tolist()
    for name, call in {
        "read-only": lambda: psring.broadcast_(bytes(4)),
        "complex": lambda: ps.mean(torch.tensor([1 + 2j])),
    }.items():
        try:
            call()
        except (TypeError, ValueError) as error:
            out[name] = str(error)
    return out


def test_buffers_are_taken_whole_or_refused(results):
    for out in results["whole_buffers"]:
        assert out["gathered"] == [[1.0, 2.0, 3.0], [2.0, 2.0, 3.0]]
        assert out["broadcast"] == [2.0, 2.0, 3.0]
        assert "writable" in out["read-only"] and "view_as_real" in out["complex"]


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: nobody else checks names")
def test_automatic_names_do_not_grow():
    """The library remembers each for ever, and takes 256 bytes of one."""
    psring.init()
    names = {auto_name("sum") for _ in range(20_000)}
    large = auto_name("model", psring.ProcessSet(range(1000)))
    psring.shutdown()
    assert len(names) < 5000
    assert len(large + ".names.text") < 200


def others():
    ps.init(process_sets=[ps.ProcessSet([0, 2])])
    me = ps.rank()
    out = {}
    out["gather"] = ps.allgather(torch.full((me + 1, 2), float(me))).tolist()
    out["gather0"] = ps.allgather(torch.tensor(me)).tolist()
    out["broadcast"] = ps.broadcast(torch.full((2,), me), 1).tolist()
    out["alltoall"] = ps.alltoall(torch.arange(6) + 10 * me).tolist()
    received, counts = ps.alltoall(torch.arange(3) + 10 * me, splits=[0, 1, 2])
    out["splits"] = (received.tolist(), counts.tolist())
    out["scatter"] = ps.reducescatter(torch.arange(4.0), op=ps.Sum).tolist()
    some = ps.ProcessSet([0, 2])
    if some.included():
        out["set"] = (ps.allreduce(torch.tensor(me), op=ps.Sum, process_set=some).item(), some.rank())
    with pytest.raises(ValueError, match="the job has ranks 0 to 2"):  # as many as there are, but others
        ps.allreduce(torch.ones(1), process_set=ps.ProcessSet([0, 1, 5]))
    out["object"] = ps.broadcast_object({"me": me}, root_rank=2)
    out["objects"] = ps.allgather_object("x" * me)
    out["sum"] = (ps.sum(me), ps.mean(me), ps.sum(torch.tensor([True, False])).tolist(), ps.mean(torch.tensor(me)).item())
    booleans = [numpy.bool_(me > 0), numpy.array([True, False]), numpy.array(True)]
    out["booleans"] = [int(ps.sum(b)) if b.ndim == 0 else ps.sum(b).tolist() for b in booleans]
    out["booleans of a tensor"] = psring.sum(torch.tensor([True, False])).tolist()
    handles = [ps.allreduce_async_(torch.full((4,), float(i)), name=f"n{i}", op=ps.Sum) for i in range(5)]
    out["async"] = [ps.synchronize(h)[0].item() for h in reversed(handles)]
    out["poll"] = ps.poll(handles[0])
    out["group"] = [t.tolist() for t in ps.grouped_allreduce([torch.ones(1), torch.ones(2)], op=ps.Sum)]
    ps.barrier()
    return out


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_other_collectives(mode):
    for me, out in enumerate(run(others, 3, mode)):
        assert out["gather"] == [[0, 0]] + [[1, 1]] * 2 + [[2, 2]] * 3
        assert out["gather0"] == [0, 1, 2]
        assert out["broadcast"] == [1, 1]
        assert out["alltoall"] == [2 * me, 2 * me + 1, 10 + 2 * me, 11 + 2 * me, 20 + 2 * me, 21 + 2 * me]
        assert out["splits"] == {0: ([], [0, 0, 0]), 1: ([0, 10, 20], [1, 1, 1]), 2: ([1, 2, 11, 12, 21, 22], [2] * 3)}[me]
        assert out["scatter"] == {0: [0, 3], 1: [6], 2: [9]}[me]
        assert out.get("set") == {0: (2, 0), 1: None, 2: (2, 1)}[me]
        assert out["object"] == {"me": 2} and out["objects"] == ["", "x", "xx"]
        assert out["sum"] == (3, 1.0, [3, 0], 1.0)
        assert out["booleans"] == [2, [3, 0], 3] and out["booleans of a tensor"] == [3, 0]
        assert out["async"] == [12, 9, 6, 3, 0] and out["poll"]
        assert out["group"] == [[3.0], [3.0, 3.0]]


@together
def gradients():
    me = ps.rank()
    out = []
    x = torch.ones(2, requires_grad=True)
    (ps.allreduce(x, op=ps.Sum) * (me + 1)).sum().backward()
    out.append(x.grad.tolist())
    x = torch.ones(me + 1, 2, requires_grad=True)
    gathered = ps.allgather(x)
    (gathered * torch.arange(3.0).reshape(3, 1)).sum().backward()
    out.append(x.grad.tolist())
    x = torch.ones(2, requires_grad=True)
    (ps.broadcast(x, 1) * (me + 1)).sum().backward()
    out.append(x.grad.tolist())
    x = torch.ones(4, requires_grad=True)
    (ps.alltoall(x) * (me + 1)).sum().backward()
    out.append(x.grad.tolist())
    x = torch.ones(4, requires_grad=True)
    (ps.reducescatter(x) * (me + 1)).sum().backward()
    out.append(x.grad.tolist())
    return out


def test_collectives_have_horovods_gradients(results):
    for me, out in enumerate(results["gradients"]):
        assert out[0] == [3, 3]
        assert out[1] == [[[0, 0]], [[1, 1], [2, 2]]][me]
        assert out[2] == [[0, 0], [1.5, 1.5]][me]
        assert out[3] == [1, 1, 2, 2]
        assert out[4] == [1, 1, 2, 2]


def penalty(norm, x):
    w = torch.arange(1.0, 4.0, dtype=torch.float64).reshape(3, 1)
    [gradient] = torch.autograd.grad((torch.tanh(norm(x)) @ w).sum(), x, create_graph=True)
    return ((gradient.norm(dim=1) - 1) ** 2).sum()


@together
def gradients_of_gradients():
    me, out = ps.rank(), {}
    x = torch.tensor(2.0 + me, requires_grad=True)
    [gradient] = torch.autograd.grad(ps.allreduce(x, op=ps.Sum) ** 3 + x**2, x, create_graph=True)
    gradient.backward()
    out["allreduce"] = x.grad.item()
    whole = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    penalty(torch.nn.BatchNorm1d(3).double(), whole).backward()
    part = whole.detach()[4 * me : 4 * me + 4].clone().requires_grad_()
    penalty(ps.SyncBatchNorm(3).double(), part).backward()
    out["norm"] = torch.allclose(part.grad, whole.grad[4 * me : 4 * me + 4])
    for call in (ps.allgather, lambda x: ps.broadcast(x, 1), ps.alltoall, ps.reducescatter):
        x = torch.ones(2, requires_grad=True)
        [gradient] = torch.autograd.grad((call(x) ** 3).sum(), x, create_graph=True)
        gradient.sum().backward()
        out.setdefault("others", []).append(x.grad.tolist())
    return out


def test_gradients_have_gradients(results):
    for me, out in enumerate(results["gradients_of_gradients"]):
        assert out["allreduce"] == 2 * (6 * 5) * 2 + 2 and out["norm"]
        # Those of allgather and broadcast are means over the ranks, which their gradients halve again.
        assert out["others"] == [[3, 3], [[0, 0], [3, 3]][me], [6, 6], [6, 6]]


@together
def mistakes():
    out = []
    for call in (
        lambda: ps.allreduce(torch.ones(2, dtype=torch.int32)),
        lambda: ps.allreduce(torch.ones(2), op=ps.Adasum),
        lambda: ps.allreduce(torch.ones(2), average=True, op=ps.Sum),
        lambda: ps.allreduce(torch.ones(2, dtype=torch.complex64), op=ps.Sum),
        lambda: ps.allreduce(torch.ones(2).to_sparse(), op=ps.Sum),
        lambda: ps.broadcast(torch.ones(1), 7),
        lambda: ps.allreduce(torch.ones(2 + ps.rank()), name="x"),
        lambda: ps.alltoall(torch.ones(3)),
    ):
        try:
            call()
            out.append(None)
        except Exception as error:
            out.append(f"{type(error).__name__}: {error}")
    return out


def test_mistakes_are_named(results):
    words = ["op=psring.torch.Sum", "Adasum", "op alone", "view_as_real", "to_dense", "root_rank=7", "rank 1", "splits"]
    for out in results["mistakes"]:
        for word, message in zip(words, out):
            assert message is not None and word in message, message


def numbers_of_two_kinds():
    ps.init()
    with pytest.raises(ps.PsringError, match="brings 1 int64, rank 1 brings 1 float64.*: pass floats on all ranks, and"):
        ps.sum(1.5 if ps.rank() else 0)
    return ps.sum(1.5 if ps.rank() else 0.0)


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in says it otherwise")
def test_a_whole_number_and_another_one_are_told_apart():
    assert run(numbers_of_two_kinds) == [1.5, 1.5]


@together
def channels():
    said = []
    for norm in (ps.SyncBatchNorm(3), ps.SyncBatchNorm(3).eval(), ps.SyncBatchNorm(3, affine=False, track_running_stats=False)):
        try:
            norm(torch.ones(4, 1))
            said.append("")
        except ValueError as error:
            said.append(str(error).partition(" takes ")[2])
    return said


def test_sync_batch_norm_refuses_other_numbers_of_channels(results):
    assert results["channels"] == [["as many channels, and this input has 1: make it SyncBatchNorm(1)"] * 2 + [""]] * 2


@together
def uneven():
    seen = []
    for _ in range(1 + 2 * ps.rank()):
        seen.append(ps.allreduce(torch.ones(1), op=ps.Sum, name=f"step{len(seen)}").item())
    return seen, ps.join(ps.local_rank())  # as Horovod's scripts call it


def test_join_lets_others_continue(results):
    assert results["uneven"] == [([2.0], 1), ([2.0, 1.0, 1.0], 1)]


@together
def buffers():
    import array

    import psring

    values = array.array("f", [1, 2, 3])
    psring.allreduce_(values, psring.Sum)
    text = psring.broadcast_(bytearray(b"abc" if psring.rank() == 0 else b"xyz"))
    gathered = psring.allgather_bytes(b"q" * psring.rank())
    return list(values), bytes(text), gathered


def test_without_a_framework(results):
    assert results["buffers"] == [([2, 4, 6], b"abc", [b"", b"q"])] * 2


def test_before_init_there_is_one_clear_error():
    with pytest.raises(ps.PsringError, match="call psring.init"):
        ps.rank()
