"""What collectives do with tensors and arguments that no script means to give them."""

import os
import pathlib

import numpy
import pytest
import torch

import psring
import psring.torch as ps
from ranks import run


def in_place_between_forward_and_backward():
    ps.init()
    said = []
    for change in (
        ps.allreduce_,
        lambda saved: ps.broadcast_(saved, 1),
        lambda saved: ps.grouped_allreduce_([saved]),
        lambda saved: ps.grouped_allreduce_(iter([saved])),
        lambda saved: ps.synchronize(ps.broadcast_async_(saved, 0)),
    ):
        saved = torch.ones(2, requires_grad=True) * (ps.rank() + 1)
        loss = saved.pow(2).sum()
        change(saved.detach())
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as error:
            loss.backward()
        said.append(str(error.value))
    with torch.inference_mode():
        untracked = torch.ones(2)
    return len(said), ps.allreduce_(untracked, op=ps.Sum).tolist()


def test_a_backward_does_not_take_what_a_collective_wrote_for_what_it_saved():
    assert run(in_place_between_forward_and_backward) == [(5, [2, 2])] * 2


def without_memory():
    fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")
    ps.init()
    collectives = (
        ps.allreduce, ps.allreduce_, ps.allgather, ps.alltoall, ps.reducescatter, lambda x: ps.broadcast(x, 0),
        lambda x: ps.broadcast_(x, 0), lambda x: ps.grouped_allreduce([x]), lambda x: ps.broadcast_parameters([x]),
    )  # fmt: skip
    with fake_tensor.FakeTensorMode():
        for call in collectives:
            with pytest.raises(TypeError, match="has no data, as one of torch's FakeTensorMode"):
                call(torch.ones(4))
    empty = ps.allreduce(torch.ones(0)).numel() + ps.allgather(torch.ones(0, 2)).numel() + ps.alltoall(torch.ones(0)).numel()
    return empty, ps.sum(1)


def test_a_tensor_without_memory_is_refused():
    assert run(without_memory) == [(0, 2)] * 2


def addresses():
    ps.init()
    values = numpy.array([{"rank": ps.rank()}, None], dtype=object)
    for call in (psring.broadcast_, psring.allgather_bytes):
        with pytest.raises(TypeError, match="use broadcast_object"):
            call(values)
    return values.tolist(), psring.broadcast_object(values).tolist()


def test_objects_of_an_array_do_not_travel_as_addresses():
    assert run(addresses) == [([{"rank": rank}, None], [{"rank": 0}, None]) for rank in range(2)]


def roots_that_differ():
    ps.init()
    for call in (ps.broadcast_object, psring.broadcast_bytes):
        with pytest.raises(ps.PsringError, match="of root 0.* of root 1"):
            call(b"mine", root_rank=ps.rank())
    return ps.broadcast_object(ps.rank(), root_rank=1)


def test_ranks_that_name_different_roots_of_an_object_hear_of_it():
    assert run(roots_that_differ) == [1, 1]


SGD = torch.optim.SGD([torch.ones(1)], lr=0.1)

# What a script gives by mistake, and what it is told.
MISTAKES = [
    (lambda x: ps.allreduce(x, process_set=[0, 1]), "process_set=[0, 1]: it is a psring.ProcessSet, such as"),
    (lambda x: ps.sum(1.0, process_set=None), "process_set=None: it is a psring.ProcessSet"),
    (lambda x: ps.barrier((0, 1)), "process_set=(0, 1): it is a psring.ProcessSet"),
    (lambda x: ps.DistributedOptimizer(SGD, process_set=[0, 1]), "process_set=[0, 1]: it is a psring.ProcessSet"),
    (lambda x: ps.remove_process_set([0]), "process_set=[0]: it is a psring.ProcessSet"),
    (lambda x: ps.ProcessSet([True, False]), "ProcessSet([True, False]): it takes ranks, whole numbers, such as [0, 1]"),
    (lambda x: ps.ProcessSet([0.5, 1]), "ProcessSet([0.5, 1]): it takes ranks"),
    (lambda x: ps.ProcessSet("01"), "ProcessSet('01'): it takes ranks"),
    (lambda x: ps.ProcessSet(1), "ProcessSet(1): it takes ranks"),
    (lambda x: ps.allreduce(x, name=5), "name=5: it is a text"),
    (lambda x: ps.grouped_allreduce([x], name=b"x"), "name=b'x': it is a text"),
    (lambda x: ps.broadcast(x, "0"), "root_rank='0': it is a rank, a whole number"),
    (lambda x: ps.broadcast_parameters([x], 0.0), "root_rank=0.0: it is a rank"),
    (lambda x: ps.broadcast_object(x, None), "root_rank=None: it is a rank"),
    (lambda x: ps.allreduce(x, prescale_factor="a"), "prescale_factor='a': it is a number"),
    (lambda x: ps.reducescatter(x, postscale_factor=None), "postscale_factor=None: it is a number"),
    (lambda x: ps.allreduce(x, compression="fp16"), "compression='fp16': it is Compression.none, .fp16 or .bf16, or"),
    (lambda x: ps.reducescatter(x, compression=1), "compression=1: it is Compression.none"),
    (lambda x: ps.grouped_allreduce([x], compression=ps.Compression), "Compression'>: it is Compression.none"),
    (lambda x: ps.alltoall(x, splits=2), "splits=2: it takes one whole number for each of 1 ranks"),
    (lambda x: ps.alltoall(x, splits=[2.5]), "splits=[2.5]: it takes one whole number"),
    (lambda x: ps.grouped_allgather([x, None]), "a group is a list of tensors, and one of this is a NoneType"),
    (lambda x: ps.grouped_allgather(x), "a group is a list of tensors, and this is one tensor"),
    (lambda x: ps.grouped_allreduce(x), "a group is a list of tensors, and this is one tensor"),
    (lambda x: ps.grouped_allreduce_(x), "a group is a list of tensors, and this is one tensor"),
    (lambda x: ps.grouped_reducescatter(x), "a group is a list of tensors, and this is one tensor"),
    (lambda x: ps.broadcast_optimizer_state(None), "broadcast_optimizer_state takes an optimizer such as"),
    (lambda x: ps.broadcast_optimizer_state(torch.nn.Linear(1, 1)), "torch.optim.SGD(...), not Linear"),
    (lambda x: ps.log_to(3), "log_to(3): it takes a function of names with numbers"),
    (lambda x: ps.log(accuracy="90%"), "log(accuracy='90%'): it is a number"),
    (lambda x: ps.log(images_per_second="many"), "log(images_per_second='many'): it is a number"),
    (lambda x: ps.log(loss="nan"), "log(loss='nan'): it is a number"),
    (lambda x: ps.DistributedOptimizer(SGD, model=[SGD]), "it is a torch.nn.Module"),
    (lambda x: ps.DistributedOptimizer(SGD, scaler=2.0), "scaler=2.0): it is a GradScaler of torch.amp"),
    (lambda x: ps.synchronize(ps.allreduce(x)), "this takes the handle that an _async call has returned, not a Tensor"),
    (lambda x: ps.poll(None), "this takes the handle that an _async call has returned"),
    (lambda x: ps.DistributedOptimizer(SGD, backward_passes_per_step=1.5), "backward_passes_per_step=1.5: it is at least 1, and a"),
    (lambda x: ps.DistributedOptimizer(SGD, backward_passes_per_step="2"), "backward_passes_per_step='2': it is"),
    (lambda x: ps.DistributedOptimizer(SGD, gradient_predivide_factor=0), "gradient_predivide_factor=0: it is a finite number"),
    (lambda x: ps.DistributedOptimizer(SGD, gradient_predivide_factor=float("nan")), "gradient_predivide_factor=nan: it is"),
    (lambda x: ps.DistributedOptimizer(SGD, bucket_mb=float("nan")), "bucket_mb=nan: it is a number from 0.00001 to 1024"),
    (lambda x: ps.DistributedOptimizer(SGD, bucket_mb="a"), "bucket_mb='a': it is a number from 0.00001 to 1024"),
    (lambda x: ps.DistributedOptimizer(SGD, compress=8), "compress=8: it is"),
]  # fmt: skip


def what_they_say():
    ps.init()
    said = []
    for call, _ in MISTAKES:
        try:
            call(torch.ones(4))
            said.append("nothing")
        except (TypeError, ValueError) as error:
            said.append(str(error))
    model = torch.nn.Linear(1, 1)
    optimizer = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=None, backward_passes_per_step=2.0)
    with pytest.raises(ValueError, match="backward_passes_per_step=nan"):
        optimizer.set_backward_passes_per_step(float("nan"))
    fine = [
        ps.broadcast(torch.ones(1), numpy.int64(0)).item(), ps.alltoall(torch.ones(2), splits=torch.tensor([2.0]))[1].tolist(),
        ps.allreduce(torch.ones(1), compression=None).item(), ps.ProcessSet(numpy.array([0])).ranks,
    ]  # fmt: skip
    return said, fine


def test_mistakes_in_arguments_are_named():
    ((said, fine),) = run(what_they_say, size=1)
    for (_, words), text in zip(MISTAKES, said):
        assert words in text
    assert fine == [1, [2], 1, [0]]


def a_generator_of_tensors():
    ps.init()
    started = ps.grouped_reducescatter_async(torch.ones(2) for _ in range(3))
    return [part.tolist() for part in ps.synchronize(started)]


def test_a_group_may_come_from_a_generator():
    assert run(a_generator_of_tensors) == [[[1]] * 3] * 2


def parameters_without_a_tensor():
    ps.init()
    model = torch.nn.Linear(1, 1)
    for wrong in (SGD.state_dict(), {"model": model.state_dict()}, "model"):
        with pytest.raises(ValueError, match="no tensor in what it was given: .* broadcast_optimizer_state"):
            ps.broadcast_parameters(wrong)
    ps.broadcast_parameters({**model.state_dict(), "epoch": 3})
    ps.broadcast_parameters({})
    return ps.sum(1)


def test_broadcast_parameters_says_where_it_finds_none():
    assert run(parameters_without_a_tensor) == [2, 2]


def test_init_names_what_it_cannot_take_before_it_joins(tmp_path):
    for wrong, said in (
        ({"step_timeout_s": float("nan")}, r"init\(step_timeout_s=nan\): it is a text, a number"),
        ({"metrics_dir": [tmp_path]}, r"init\(metrics_dir=\["),
        ({"process_sets": 5}, "process_sets=5: it is a list of psring.ProcessSet"),
        ({"process_sets": [5]}, r"ProcessSet\(5\): it takes ranks"),
        ({"staleness": 1.5}, r"staleness \(or PSRING_STALENESS\) is 1.5: not a whole number from 0"),
        ({"staleness": -2}, r"staleness \(or PSRING_STALENESS\) is -2: not a whole number from 0"),
        ({"bucket_mb": 0}, "bucket_mb=0.0: it is a number from 0.00001 to 1024"),
        ({"compress": "fp8"}, "compress='fp8': it is"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            psring.init(**wrong)
        assert not psring.is_initialized()


def a_second_init(folder):
    psring.init("ps", 1, sync="ssp:3", metrics_dir=folder, step_timeout_s=30)
    psring.init()
    psring.init("ps", servers=1, sync="ssp", staleness="3", rank=psring.rank(), size=2, metrics_dir=folder)
    psring.init(compress="none", bucket_mb="25", gpu="auto", join_timeout_s=60, process_sets=[[0]])
    with pytest.raises(TypeError, match="init\\(\\) has no option 'foo'"):
        psring.init(foo=1)
    said = []
    others = {"mode": "ring", "servers": 2, "sync": "bsp", "staleness": 2, "compress": "fp16", "step_timeout_s": 61}
    for name, value in others.items():
        with pytest.raises(ValueError) as error:
            psring.init(**{name: value})
        said.append(str(error.value))
    return psring.sum(1), said


def test_a_second_init_does_not_ask_for_another_job(tmp_path):
    for total, said in run(a_second_init, args=(str(tmp_path),)):
        assert total == 2
        assert said[0] == (
            "init(mode='ring'): this process has joined its job already, with mode='ps'; give it to the first init(), or "
            "leave it out"
        )
        assert "servers=1" in said[1] and "sync='ssp'" in said[2] and "staleness=3" in said[3]
        assert "compress='none'" in said[4] and "step_timeout_s=30" in said[5]


def paths(folder):
    psring.init(metrics_dir=pathlib.Path(folder), step_timeout_s=numpy.float32(30))
    psring.shutdown()  # the files are whole then


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in writes no metrics")
def test_init_takes_paths_and_numbers_of_numpys(tmp_path):
    run(paths, args=(str(tmp_path),))
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["worker-0.jsonl", "worker-1.jsonl"]
