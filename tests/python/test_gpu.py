"""Gradients on GPUs: what is decided before CUDA is asked for anything, and how the
library's memory is kept in order with streams, on any host; then, where there are a GPU, a
PyTorch and a library with CUDA, trainings beside the CPU's. There:

    ./psring build && PSRING_LIBRARY=$PWD/bazel-bin/python/capi/libpsring.so \\
        python3 -m pytest -rs tests/python/test_gpu.py

On a host that cannot build it, PSRING_LIBRARY names psring/lib/libpsring.so of a wheel that was unpacked
there (./psring wheel --cuda), and PyTorch has NumPy.
"""

import contextlib
import ctypes
import json
import os
import warnings
from types import SimpleNamespace

import pytest
import torch

import psring
import psring.torch as ps
from psring.torch import _tensors, gpu, gradient_exchange
from ranks import run
from test_memory import save_a_layer


def entry(name, device):
    return SimpleNamespace(name=name, param=SimpleNamespace(device=torch.device(device)))


@pytest.fixture
def with_cuda(monkeypatch):
    """A PyTorch and a library that were built with CUDA."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(psring._lib, "cuda_built", lambda: True)
    monkeypatch.setattr(_tensors, "_warned", set())


@contextlib.contextmanager
def one_warning(match):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert len(caught) == 1 and match in str(caught[0].message), [str(w.message) for w in caught]


def test_a_gpus_gradients_stay_there(with_cuda):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gpu.choose([entry("w", "cuda:1"), entry("b", "cuda:1")], None) == torch.device("cuda:1")
        assert gpu.choose([entry("w", "cpu")], "nccl") is None


@pytest.mark.parametrize("why", ["library", "off", "rocm", "mps"])
def test_otherwise_they_are_copied_with_one_warning(with_cuda, monkeypatch, why):
    if why == "library":
        monkeypatch.setattr(psring._lib, "cuda_built", lambda: False)
    if why == "rocm":
        monkeypatch.setattr(torch.version, "cuda", None)
    device = "mps:0" if why == "mps" else "cuda:0"
    with one_warning(f"copies tensors on {device}"):
        for _ in range(2):
            entries = [entry("w", device), entry("b", device)]
            assert gpu.choose(entries, "off" if why == "off" else None) is None


@pytest.mark.parametrize("wish", ["nccl", "host"])
def test_a_wish_that_a_library_without_cuda_cannot_fulfil_is_an_error(with_cuda, monkeypatch, wish):
    monkeypatch.setattr(psring._lib, "cuda_built", lambda: False)
    with pytest.raises(ValueError, match=f"PSRING_GPU={wish}.*built without CUDA.*nvcc"):
        gpu.choose([entry("w", "cuda:0")], wish)


@pytest.mark.parametrize("other", ["cuda:1", "cpu"])
def test_tensors_on_several_devices_are_named_with_a_remedy(with_cuda, other):
    with pytest.raises(ValueError, match=f"a.weight is on cuda:0, and b.weight on {other}.*PSRING_GPU=off"):
        gpu.choose([entry("a.weight", "cuda:0"), entry("b.weight", other)], None)


def test_ranks_with_and_without_gpus_meet_on_the_hosts(monkeypatch):
    device = torch.device("cuda:2")
    monkeypatch.setattr(psring._job, "mode", lambda: "ring")
    assert gpu.model_options(device, ["gpu:auto"] * 3) == {"device": "cuda:2", "ring_backend": "auto"}
    assert gpu.model_options(device, ["gpu:auto", "host"]) == {"device": "cuda:2", "ring_backend": "host"}
    with pytest.raises(ValueError, match='gpu="nccl" on rank 0, but rank 1 .* the host'):
        gpu.model_options(device, ["gpu:nccl", "host"])
    with pytest.raises(ValueError, match="on rank 1, but rank 0 .* with gpu='auto'"):
        gpu.model_options(device, ["gpu:auto", "gpu:nccl"])


def test_init_refuses_another_gpu_word():
    with pytest.raises(ValueError, match='gpu=\'fast\': it is "auto", "nccl", "host" or "off"'):
        ps.init(gpu="fast")


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="needs the real library: set PSRING_LIBRARY")
def test_a_model_on_a_gpu_that_cannot_be_opened_is_refused_with_a_remedy():
    assert ps.cuda_built() == psring._lib.cuda_built() and ps.nccl_built() == int(ps.cuda_built())
    if torch.cuda.is_available():
        pytest.skip("this host has a GPU")
    for error in run(open_on_gpu, size=1):
        assert error.startswith("a model on cuda:0: ") and "PSRING_GPU=off" in error


def open_on_gpu():
    ps.init()
    options = {"device": "cuda:0", "update": "local"}
    try:
        psring._models.Model("m", [("w", [3])], options)
    except ps.PsringError as error:
        return str(error)


# ---- The way through an optimizer, over the host's memory ----------------------


class FakeStream:
    def __init__(self, number, log):
        self.cuda_stream, self._log = number, log

    def wait_stream(self, other):
        self._log.append(("wait", self.cuda_stream, other.cuda_stream))


def pretend_a_gpu(current_stream, number_of_current, set_stream):
    """Takes the memory of the library for a GPU's, with these in place of torch's and the library's calls."""
    torch.cuda.device = lambda device: contextlib.nullcontext()
    torch.cuda.current_stream = current_stream
    torch._C._cuda_getCurrentRawStream = number_of_current
    psring._models.Model.set_stream = set_stream
    gpu.choose = lambda entries, wish: torch.device("cpu")
    gpu.place_of = lambda device, wish: "gpu:host"
    gradient_exchange.over_gpu_memory = lambda address, n, device, used_by: torch.frombuffer(
        (ctypes.c_float * n).from_address(address), dtype=torch.float32
    )


def train(update, on_gpu, tells_numbers=True):
    """A few steps whose hooks run in streams by turns. on_gpu: on what is taken for a GPU. tells_numbers: torch has its function for the current stream's number."""
    log = []
    if on_gpu:
        streams = [FakeStream(0, log), FakeStream(7, log)]
        turns = [streams[turn % 3 == 0] for turn in range(1000)]

        def number_of_current(index):
            turns.pop(0)
            return turns[0].cuda_stream

        pretend_a_gpu(
            current_stream=lambda device: turns[0] if tells_numbers else turns.pop(0),
            number_of_current=number_of_current if tells_numbers else None,
            set_stream=lambda model, stream: log.append(("tell", stream)),
        )
    ps.init()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    opt = ps.DistributedOptimizer(opt, model=net, update=update, bucket_mb=1e-5)
    data = torch.randn(4, 5, 4, generator=torch.Generator().manual_seed(ps.rank()))
    for x in data:
        opt.zero_grad()
        with opt.no_sync():
            net(x).square().sum().backward()
        net(x).sum().backward()
        opt.step()
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()]).tolist(), log


def train_local():
    return train("local", False)


def train_local_gpu():
    return train("local", True)


def train_fused():
    return train("fused", False)


def train_fused_gpu():
    return train("fused", True)


def train_without_numbers():
    return train("fused", True, tells_numbers=False)


@pytest.mark.parametrize("plain, on_gpu", [
    (train_local, train_local_gpu), (train_fused, train_fused_gpu), (train_fused, train_without_numbers),
])  # fmt: skip
def test_what_hooks_do_in_several_streams_is_one_sequence(plain, on_gpu):
    expected = run(plain)[0][0]
    for weights, log in run(on_gpu):
        assert weights == expected
        # The library is told of each change of stream, behind a wait for the last one.
        assert log[0] == ("tell", 7) and len(log) > 10
        last = 7
        for wait, tell in zip(log[1::2], log[2::2]):
            assert wait == ("wait", tell[1], last) and tell[0] == "tell"
            last = tell[1]


def pretend_a_gpu_with_one_stream():
    pretend_a_gpu(
        current_stream=lambda device: FakeStream(0, []),
        number_of_current=lambda index: 0,
        set_stream=lambda model, stream: None,
    )


def save_a_layer_on_gpu():
    pretend_a_gpu_with_one_stream()
    return save_a_layer()


def test_a_saved_layer_is_that_layer_alone():
    assert max(run(save_a_layer_on_gpu)) < 10000


def train_all_kinds(on_gpu, prescale):
    """Gradients of several dtypes and layouts in few buckets: the weights and the number
    of calls that copy several."""
    calls = []
    if on_gpu:
        pretend_a_gpu_with_one_stream()
        copy = _tensors._foreach_copy
        if copy is not None:
            _tensors._foreach_copy = lambda places, values: (calls.append(len(places)), copy(places, values))
    ps.init()
    torch.manual_seed(0)
    first = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    second = torch.nn.Conv2d(4, 5, 1).to(memory_format=torch.channels_last)
    third = torch.nn.Linear(5, 3)
    half = torch.nn.Parameter(torch.randn(7, 3, dtype=torch.float16))
    turned = torch.nn.Parameter(torch.randn(3, 6).t())
    named = [("half", half), ("turned", turned)]
    named += [(f"{i}.{n}", p) for i, m in enumerate((first, second, third)) for n, p in m.named_parameters()]
    opt = torch.optim.SGD([p for _, p in named], lr=0.1, momentum=0.9)
    opt = ps.DistributedOptimizer(
        opt, named_parameters=named, bucket_mb=4e-4, gradient_predivide_factor=prescale)  # fmt: skip
    data = torch.randn(4, 2, 3, 5, 5, generator=torch.Generator().manual_seed(ps.rank()))
    for x in data:
        opt.zero_grad()
        y = second(first(x.contiguous(memory_format=torch.channels_last)).relu()).mean((2, 3))
        y = third(y) @ half.float().t()
        (y.square().sum() + (third(torch.ones(6, 5)) * turned).sum()).backward()
        opt.step()
    buckets = opt._psring.reducer.exchange.num_buckets
    if on_gpu:
        _tensors._foreach_copy = copy
    return [p.detach().reshape(-1).clone().view(torch.uint8).tolist() for _, p in named], calls, buckets


def train_all_kinds_on_host():
    return train_all_kinds(False, 1.0), train_all_kinds(False, 3.0)


def train_all_kinds_on_gpu():
    return train_all_kinds(True, 1.0), train_all_kinds(True, 3.0)


def train_all_kinds_on_gpu_of_older_torch():
    _tensors._foreach_copy = None
    return train_all_kinds_on_gpu()


@pytest.mark.parametrize("on_gpu", [train_all_kinds_on_gpu, train_all_kinds_on_gpu_of_older_torch])
def test_a_buckets_gradients_are_copied_together_with_the_same_bits(on_gpu):
    expected = run(train_all_kinds_on_host)[0]
    for rank in run(on_gpu):
        for (weights, calls, buckets), (wanted, _, _) in zip(rank, expected):
            assert weights == wanted
            if on_gpu is train_all_kinds_on_gpu and hasattr(torch, "_foreach_copy_"):
                assert max(calls) > 2 and len(calls) <= 4 * buckets
            else:
                assert not calls


class Elsewhere(torch.Tensor):
    device = torch.device("cuda:3")


@pytest.mark.parametrize("together", [True, False])
def test_what_differs_in_more_than_its_size_is_copied_by_itself(monkeypatch, together):
    calls = []
    copy = getattr(torch, "_foreach_copy_", None)
    if together and copy is None:
        pytest.skip("torch before 2.1 has no _foreach_copy_")
    monkeypatch.setattr(
        _tensors, "_foreach_copy", (lambda p, v: (calls.append(len(p)), copy(p, v))) if together else None)  # fmt: skip
    values = [
        torch.randn(5), torch.randn(3, 4), torch.randn(()), torch.randn(6, 2, 1, 1).to(memory_format=torch.channels_last),
        torch.randn(4, 3).t(), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.randn(8)[::2],
        torch.randn(3).half(), torch.randn(3).bfloat16(), torch.randn(3).double(), torch.randn(3).as_subclass(Elsewhere),
    ]  # fmt: skip
    values[0][0] = float("nan")
    places = [torch.empty(value.shape) for value in values]
    # A place that lies as its value does, unlike the one before it.
    places[5] = torch.empty_like(values[5])
    _tensors.copy_all(list(zip(places, values)))
    for place, value in zip(places, values):
        place = place.contiguous()
        wanted = torch.empty(value.shape).copy_(value)
        assert place.view(torch.int32).equal(wanted.view(torch.int32))
    assert calls == ([5] if together else [])
    _tensors.copy_all([])


@pytest.mark.skipif(not hasattr(torch, "_foreach_copy_"), reason="torch before 2.1 has no _foreach_copy_")
def test_what_lies_as_its_place_is_copied_without_a_view(monkeypatch):
    taken = []
    monkeypatch.setattr(_tensors, "_foreach_copy", lambda places, values: taken.extend(values))
    values = [torch.randn(2, 3), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)]
    _tensors.copy_all([(torch.empty_like(value), value) for value in values])
    assert [a is b for a, b in zip(taken, values)] == [True, True]


# ---- On a GPU ------------------------------------------------------------------


def _lacks_a_gpu():
    if not torch.cuda.is_available():
        return "PyTorch has no CUDA, or there is no GPU"
    if not os.environ.get("PSRING_LIBRARY"):
        return "PSRING_LIBRARY is not set"
    return "" if psring._lib.cuda_built() else "libpsring.so was built without CUDA"


needs_gpu = pytest.mark.skipif(bool(_lacks_a_gpu()), reason=_lacks_a_gpu() or "-")


def train_mlp():
    """The same training on the CPU or on a GPU, there in a stream of its own if told to."""
    warnings.simplefilter("error")  # nothing is copied by PyTorch
    ps.init()
    device = torch.device("cpu")
    if os.environ["TEST_DEVICE"] == "cuda":
        device = torch.device("cuda", ps.local_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(20, 256), torch.nn.ReLU(), torch.nn.Linear(256, 5)).to(device)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    opt = ps.DistributedOptimizer(opt, model=net, bucket_mb=0.01)
    data = torch.randn(20, 32, 20, generator=torch.Generator().manual_seed(ps.rank())).to(device)
    own = os.environ.get("TEST_STREAM") and device.type == "cuda"
    if own:
        torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream(device)) if own else contextlib.nullcontext():
        for x in data:
            opt.zero_grad()
            with opt.no_sync():
                net(x[:16]).square().mean().backward()
            net(x[16:]).square().mean().backward()
            opt.step()
        weights = torch.cat([p.detach().reshape(-1) for p in net.parameters()]).tolist()
    exchange = opt._psring.reducer.exchange
    return weights, exchange.ring_backend, exchange.results.device.type


def trained(device, size, mode, **env):
    ranks = run(train_mlp, size=size, mode=mode, timeout=300, env={"TEST_DEVICE": device, **env})
    weights, _, where = ranks[0]
    assert where == device and all(other[0] == weights for other in ranks)
    return weights, ranks[0][1]


@needs_gpu
@pytest.mark.parametrize("stream", ["", "its own"])
@pytest.mark.parametrize("update", ["local", "fused"])
def test_hosts_sum_what_lies_on_gpus(update, stream):
    expected, _ = trained("cpu", 2, "ring", PSRING_UPDATE=update)
    env = {"PSRING_UPDATE": update, "TEST_STREAM": stream}
    ring, backend = trained("cuda", 2, "ring", PSRING_GPU="host", **env)
    assert backend == "host" and ring == pytest.approx(expected, abs=1e-4)
    assert trained("cuda", 2, "ps", **env)[0] == ring  # the same bits


@needs_gpu
@pytest.mark.parametrize("stream", ["", "its own"])
@pytest.mark.parametrize("update", ["local", "fused"])
def test_nccl_sums_where_every_rank_has_a_gpu(update, stream):
    # One worker with "local" exchanges nothing.
    size = min(torch.cuda.device_count(), 4)
    if size == 1 and update == "local":
        pytest.skip("needs 2 GPUs")
    expected, _ = trained("cpu", size, "ring", PSRING_UPDATE=update)
    weights, backend = trained("cuda", size, "ring", PSRING_UPDATE=update, TEST_STREAM=stream)
    assert backend == "nccl" and weights == pytest.approx(expected, abs=1e-4)


@needs_gpu
def test_ranks_that_share_a_gpu_sum_on_the_hosts():
    size = torch.cuda.device_count() + 1
    expected, _ = trained("cpu", size, "ring")
    weights, backend = trained("cuda", size, "ring")
    assert backend == "host" and weights == pytest.approx(expected, abs=1e-4)


def train_normed():
    """With a batch norm, whose buffers are rank 0's after each step."""
    ps.init()
    device = torch.device(os.environ["TEST_DEVICE"])
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)).to(device)
    opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
    data = torch.randn(4, 16, 5, generator=torch.Generator().manual_seed(ps.rank())).to(device)
    for x in data:
        opt.zero_grad()
        net(x).square().sum().backward()
        opt.step()
    return [net[1].running_mean.tolist(), net[1].running_var.tolist(), net[1].num_batches_tracked.item()]


@needs_gpu
@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_buffers_on_gpus_are_those_of_rank_0(mode):
    results = {}
    for device in ("cpu", "cuda"):
        first, second = run(train_normed, mode=mode, timeout=300, env={"TEST_DEVICE": device})
        assert first == second
        results[device] = first
    for of_cpu, of_gpu in zip(results["cpu"], results["cuda"]):
        assert of_gpu == pytest.approx(of_cpu, abs=1e-4)


def test_the_metrics_tell_a_gpus_memory(monkeypatch):
    assert not torch.cuda.is_initialized() and gpu.memory_figures() == {}
    device = torch.device("cuda", 1)
    monkeypatch.setattr(gpu, "_most_model_bytes", {})
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    stats = {"allocated_bytes.all.current": 5, "reserved_bytes.all.current": 8, "reserved_bytes.all.peak": 9}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda of: stats if of == device else {})
    gpu.note_model_bytes(device, 100)
    gpu.note_model_bytes(device, 50)
    assert gpu.memory_figures() == {
        "gpu_memory_bytes": {"model": 100, "allocated": 5, "peak_allocated": 0, "reserved": 8, "peak_reserved": 9}
    }


@needs_gpu
def test_the_last_line_of_the_metrics_has_the_gpus_memory(tmp_path):
    run(train_mlp, size=1, timeout=300, env={"TEST_DEVICE": "cuda", "PSRING_METRICS_DIR": str(tmp_path), "PSRING_UPDATE": "fused"})
    end = json.loads((tmp_path / "worker-0.jsonl").read_text().splitlines()[-1])
    memory = end["gpu_memory_bytes"]
    assert memory["peak_reserved"] >= memory["reserved"] >= memory["allocated"] > 0
    assert memory["model"] > 4 * 4 * 20 * 256  # parameters, gradients and Adam's state


def train_sparse():
    """An embedding whose rows go by themselves; rank 1 has none in the second step."""
    ps.init()
    device = torch.device(os.environ["TEST_DEVICE"])
    torch.manual_seed(0)
    net = torch.nn.ModuleList([torch.nn.Embedding(6, 3, sparse=True), torch.nn.Linear(3, 2)]).to(device)
    opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
    for step in range(3):
        opt.zero_grad()
        rows = torch.tensor([step, 2 * ps.rank()], device=device)
        given = torch.ones(2, 3, device=device) if step == 1 and ps.rank() == 1 else net[0](rows)
        net[1](given).square().sum().backward()
        opt.step()
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()]).tolist()


def sparsely_trained(device):
    first, second = run(train_sparse, timeout=300, env={"TEST_DEVICE": device})
    assert first == second
    return first


@needs_gpu
def test_sparse_gradients_on_a_gpu_are_those_on_the_cpu():
    assert sparsely_trained("cuda") == pytest.approx(sparsely_trained("cpu"), abs=1e-5)


def train_in_all_ways():
    """Checksum and weights by way of test_bits.py, whose functions look at TEST_DEVICE."""
    import test_bits

    ps.init()
    if test_bits.device() == "cuda":
        torch.cuda.set_device(ps.local_rank() % torch.cuda.device_count())
    models = [test_bits.trained(update, kind, **more) for update, kind, more in test_bits.WAYS]
    return [(test_bits.crc(model), torch.tensor(test_bits.weights(model))) for model in models]


def in_all_ways(device, mode, size=2, **env):
    # cuBLAS computes with the same bits each time only with one workspace for each stream.
    env = {"TEST_DEVICE": device, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **env}
    ranks = run(train_in_all_ways, size=size, mode=mode, timeout=300, env=env)
    return [[crc for crc, _ in rank] for rank in ranks], [weights for _, weights in ranks[0]]


def assert_near(found, expected):
    from test_bits import WAYS

    for way, a, b in zip(WAYS, found, expected):
        # A step more or less moves every weight by 0.01 or so.
        limit = 3e-3 if {"autocast", "dtype"} & way[2].keys() else 1e-5
        assert (a - b).abs().mean() < limit, (way, (a - b).abs().mean())


@needs_gpu
def test_all_ways_to_train_have_the_same_bits_in_both_topologies_on_a_gpu():
    ring, weights = in_all_ways("cuda", "ring", PSRING_GPU="host")
    assert ring[0] == ring[1]
    for env in ({"PSRING_GPU": "host"}, {"PSRING_GPU": "off"}):
        assert in_all_ways("cuda", "ps", **env)[0] == ring
    assert_near(weights, in_all_ways("cpu", "ring")[1])


@needs_gpu
def test_all_ways_to_train_over_nccl():
    size = min(torch.cuda.device_count(), 4)  # alone, "fused" still goes through NCCL
    ranks, weights = in_all_ways("cuda", "ring", size)
    assert all(rank == ranks[0] for rank in ranks)
    assert_near(weights, in_all_ways("cpu", "ring", size)[1])


def train_compiled():
    """A compiled model and the same one as it is, each with a scheduler's rates."""
    ps.init()
    device = torch.device("cuda", ps.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    weights = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(576, 5))
        net = net.to(device, memory_format=torch.channels_last)
        opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), model=net)
        schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=8)
        call = torch.compile(net) if compiled else net
        generator = torch.Generator().manual_seed(ps.rank())
        for _ in range(8):
            opt.zero_grad()
            x = torch.randn(8, 3, 8, 8, generator=generator).to(device, memory_format=torch.channels_last)
            call(x).square().mean().backward()
            opt.step()
            schedule.step()
        weights.append(torch.cat([p.detach().reshape(-1) for p in net.parameters()]).tolist())
        opt.close()
    return weights


@needs_gpu
@pytest.mark.parametrize("mode", ["ring", "ps"])
@pytest.mark.parametrize("update", ["local", "fused"])
def test_a_compiled_model_on_a_gpu_trains_as_it_does_otherwise(update, mode):
    ranks = run(train_compiled, mode=mode, timeout=300, env={"PSRING_UPDATE": update})
    assert ranks[0] == ranks[1]
    plain, compiled = ranks[0]
    assert compiled == pytest.approx(plain, abs=1e-3)


@needs_gpu
@pytest.mark.parametrize("update", ["local", "fused"])
@pytest.mark.parametrize("end", ["close", "load", "shutdown"])
def test_what_a_script_holds_outlives_the_optimizers_memory_on_a_gpu(update, end):
    import test_memory

    assert run(test_memory.hold_views, args=(update, end), timeout=120, env={"TEST_DEVICE": "cuda"}) == [True, True]


@needs_gpu
@pytest.mark.parametrize("update", ["local", "fused"])
def test_memory_on_a_gpu_over_which_nothing_lies_is_freed(update):
    import test_memory

    for left in run(test_memory.models_after_each_other, args=(update,), timeout=120, env={"TEST_DEVICE": "cuda"}):
        assert len(set(left)) == 1, left
