"""A script in Horovod's style, started as a user starts it, in each topology.

With PSRING_MNIST_DIR, a folder of MNIST's files, it has to learn them, too.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest
import torch

from ranks import PROGRAM, PYTHONPATH, ROOT, run_script

SCRIPT = os.path.join(ROOT, "examples", "python", "mnist_horovod_style.py")
MNIST = os.environ.get("PSRING_MNIST_DIR")

pytestmark = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY") or not os.path.exists(PROGRAM),
    reason="the library or the psring program is not built: ./psring test builds them",
)


def train(launcher, weights, epochs, env=None):
    """What the script prints, started by `launcher`; it saves its weights."""
    data = [f"--data={MNIST}"] if MNIST else []
    ran = subprocess.run(
        [*launcher, sys.executable, SCRIPT, f"--epochs={epochs}", "--workers=0", f"--save={weights}", *data],
        env={
            **{name: value for name, value in os.environ.items() if name == "PSRING_LIBRARY" or "PSRING" not in name},
            "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **(env or {}),
        },  # fmt: skip
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def run_text(folder, text, size, mode, sync="bsp", args=()):
    """Of a script's text with those arguments: (exit code, what it prints, its errors) by rank."""
    script = folder / "script.py"
    script.write_text(text)
    return run_script(str(script), size, mode=mode, env={"PSRING_SYNC": sync}, args=[str(arg) for arg in args], timeout=120)


def printed(*arguments, **more):
    """By rank, by a script of run_text's that ends well."""
    ranks = run_text(*arguments, **more)
    assert all(code == 0 for code, _, _ in ranks), ranks
    return [out for _, out, _ in ranks]


def accuracy(output):
    """Of the last epoch, in percent."""
    return float(re.findall(r"accuracy ([\d.]+)%", output)[-1])


def bits(path):
    return {name: value.numpy().tobytes() for name, value in torch.load(path).items()}


def test_the_topologies_train_the_same_weights(tmp_path):
    ring, servers = tmp_path / "ring.pt", tmp_path / "ps.pt"
    train([PROGRAM, "run", "-n", "2", "--mode=ring", "--"], ring, 1)
    train([PROGRAM, "run", "-n", "2", "--mode=ps", "--servers=2", "--"], servers, 1)
    assert bits(ring) == bits(servers)
    if shutil.which("mpirun"):
        mpi = tmp_path / "mpi.pt"
        train(["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none"], mpi, 1, {"PSRING_MODE": "ps"})
        assert bits(mpi) == bits(ring)


def test_asynchronous_servers_train_an_unchanged_script(tmp_path):
    """It learns at least as fast as one process that takes all steps by itself."""
    run = [PROGRAM, "run", "--mode=ps", "--sync=async"]
    epochs = 3 if MNIST else 1
    together = accuracy(train([*run, "-n", "2", "--"], tmp_path / "two.pt", epochs))
    if MNIST:
        alone = accuracy(train([PROGRAM, "run", "-n", "1", "--"], tmp_path / "one.pt", epochs))
        assert together > alone - 5, (together, alone)


ADAM = """
import sys, torch
import psring.torch as ps
ps.init()
net = torch.nn.Linear(3, 2)
opt = torch.optim.Adam(net.parameters(), lr=0.01)
opt = ps.DistributedOptimizer(opt, model=net)
if sys.argv[2] != "-":
    opt.load_state_dict(torch.load(sys.argv[2]))
for _ in range(int(sys.argv[1])):
    opt.zero_grad()
    net(torch.ones(1, 3)).sum().backward()
    opt.step()
opt.synchronize_parameters()
state = opt.state_dict()
if ps.rank() == 0:
    torch.save(state, sys.argv[3])
"""


def test_asynchronous_servers_go_on_counting_adams_updates_with_other_workers(tmp_path):
    def train_adam(workers, steps, loaded, saved):
        printed(tmp_path, ADAM, workers, "ps", "async", args=[steps, loaded, saved])
        return [of["step"].item() for of in torch.load(saved)["state"].values()]

    # Every gradient of every worker is an update.
    assert train_adam(3, 4, "-", tmp_path / "three.pt") == [12, 12]
    assert train_adam(2, 5, tmp_path / "three.pt", tmp_path / "two.pt") == [22, 22]
    assert train_adam(1, 1, tmp_path / "two.pt", tmp_path / "one.pt") == [23, 23]


# Rank 1 makes more steps, which nobody waits for.
UNEVEN_ADAM = """
import torch
import psring.torch as ps
ps.init()
p = torch.nn.Parameter(torch.zeros(4))
opt = ps.DistributedOptimizer(torch.optim.Adam([p], lr=0.01))
def train(steps):
    for _ in range(steps):
        opt.zero_grad()
        p.sum().backward()
        opt.step()
train(2 if ps.rank() == 0 else 50)
state = opt.state_dict()
counts = [float(state["state"][0]["step"])]
opt.load_state_dict(state)
before = p.detach().clone()
train(1)
opt.synchronize_parameters()
counts.append(float(opt.state_dict()["state"][0]["step"]))
print("counts", counts, "moved", round(float((before - p)[0]), 3))
"""


def test_adams_count_holds_the_updates_of_workers_that_have_made_more_steps(tmp_path):
    # A gradient that is always 1 moves by the learning rate with each update, where the count is right.
    assert printed(tmp_path, UNEVEN_ADAM, 2, "ps", "async") == ["counts [52.0, 54.0] moved 0.02\n"] * 2


# Each worker follows its own schedule, and they are at different steps of it.
OWN_SCHEDULES = """
import sys, torch
import psring.torch as ps
ps.init()
p = torch.nn.Parameter(torch.zeros(4))
opt = torch.optim.SGD([p], lr=0.25, momentum=0.0 if sys.argv[1] == "sgd" else 0.5)
opt = ps.DistributedOptimizer(opt)
schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
def train(steps):
    for _ in range(steps):
        opt.zero_grad()
        p.sum().backward()
        opt.step()
        schedule.step()
train(1 + ps.rank())
opt.synchronize_parameters()
with torch.no_grad():
    p.fill_(1.0)
if sys.argv[1] == "momentum":
    opt.param_groups[0]["momentum"] -= 0.25 * ps.rank()
opt.load_state_dict(opt.state_dict())
train(1)
opt.synchronize_parameters()
print("ends with", p.tolist()[0])
"""


def test_asynchronous_workers_with_own_learning_rates_go_on_from_written_parameters(tmp_path):
    # From 1, rank 0's step takes 1/8 and rank 1's 1/16.
    assert printed(tmp_path, OWN_SCHEDULES, 2, "ps", "async", args=["sgd"]) == ["ends with 0.8125\n"] * 2
    assert len(printed(tmp_path, OWN_SCHEDULES, 2, "ps", "async", args=["momentum"])) == 2


# A schedule that looks at the rank's own loss.
OWN_RATES = """
import sys, torch
import psring.torch as ps
ps.init(same_host=sys.argv[1])
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
opt = ps.DistributedOptimizer(opt, model=net, update="fused")
for step in range(100):
    if step == 10:
        opt.param_groups[0]["lr"] *= 1 - 0.5 * ps.rank()
    opt.zero_grad()
    net(torch.ones(1, 3)).sum().backward()
    opt.step()
"""


@pytest.mark.parametrize("mode, same_host", [("ring", "auto"), ("ring", "off"), ("ps", "auto")])
def test_ranks_that_step_with_other_learning_rates_are_told(tmp_path, mode, same_host):
    ranks = run_text(tmp_path, OWN_RATES, 3, mode, args=[same_host])
    assert all(code != 0 for code, _, _ in ranks), ranks
    told = "".join(err for _, _, err in ranks)
    assert re.search(r"worker 1 \(host .*\) had other learning rates or momenta than worker 0 \(0\.05, there 0\.1\)", told), told


# Rank 1 overflows in its second step, and makes the others when rank 0 has made all.
SCALED = """
import os, sys, time, torch
import psring.torch as ps
ps.init()
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
opt = ps.DistributedOptimizer(opt, model=net, scaler=scaler)
for step in range(10):
    while ps.rank() == 1 and step == 2 and not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
    opt.zero_grad()
    loss = net(torch.ones(1, 3)).sum() * (float("inf") if ps.rank() == 1 and step == 1 else 1.0)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
if ps.rank() == 0:
    open(sys.argv[1], "w").close()
print("scale", scaler.get_scale())
opt.synchronize_parameters()
print("finite", all(p.isfinite().all().item() for p in net.parameters()))
"""


@pytest.mark.skipif(not hasattr(torch, "amp") or not hasattr(torch.amp, "GradScaler"), reason="an older torch")
def test_asynchronous_ranks_with_a_scaler_wait_for_nobody(tmp_path):
    told = printed(tmp_path, SCALED, 2, "ps", "async", args=[tmp_path / "made"])
    assert told == ["scale 4.0\nfinite True\n", "scale 2.0\nfinite True\n"]


FROZEN = """
import torch
import psring.torch as ps
ps.init()
net = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.Linear(20, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
opt = ps.DistributedOptimizer(opt, model=net, update="local", compress="topk:0.01")
for step in range(20):
    if step == 5:
        before = net[0].requires_grad_(False).weight.clone()
    opt.zero_grad()
    net(torch.randn(4, 30)).pow(2).sum().backward()
    opt.step()
print("stays", torch.equal(before, net[0].weight))
"""


def test_a_frozen_parameter_stays_though_compression_has_left_out_some_of_its_gradients(tmp_path):
    assert printed(tmp_path, FROZEN, 2, "ring") == ["stays True\n"] * 2


MID_STEP = """
import torch, psring.torch as ps
ps.init()
net = torch.nn.Linear(4, 4)
opt = ps.DistributedOptimizer(torch.optim.Adam(net.parameters()), model=net)
for step in range(2):
    opt.zero_grad()
    net(torch.ones(1, 4)).sum().backward()
    if step == 1:
        for call in opt.synchronize_parameters, opt.state_dict:
            try:
                call()
            except ps.InvalidArgumentError as error:
                print(error)
    opt.step()
opt.synchronize_parameters()
print(len(opt.state_dict()["state"]), "parameters have a state")
"""


def test_workers_of_async_do_not_meet_while_a_step_is_under_way(tmp_path):
    for out in printed(tmp_path, MID_STEP, 2, "ps", "async"):
        assert out.count("has begun a step: workers meet") == 2, out
        assert out.count("2 parameters have a state") == 1, out
