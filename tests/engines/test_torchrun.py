"""Jobs that torchrun starts on two hosts."""

import os
import subprocess
import sys

import pytest

import hosts
from conftest import ROOT, TRAIN, assert_same_training, result_in

QUICK = os.path.join(ROOT, "tests", "python", "quick")


def python_with_torch():
    for python in (sys.executable, os.path.join(ROOT, ".venv", "bin", "python3")):
        if os.path.exists(python) and subprocess.run([python, "-c", "import torch, numpy"], capture_output=True).returncode == 0:
            return python
    return ""


@pytest.fixture(scope="module")
def python():
    if hosts.why_not():
        pytest.skip(hosts.why_not())
    return python_with_torch() or pytest.skip("no python has torch and numpy")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    two = hosts.Hosts(str(tmp_path_factory.mktemp("hosts")), "n1", "n2")
    yield two
    two.close()


def torchrun(two, python, environment, flags, folder, *more, each=1):
    """The output of both hosts' torchruns, which must succeed; of so many ranks each, which import torch as torchrun does."""
    argv = [python, "-m", "torch.distributed.run", "--nnodes=2", f"--nproc-per-node={each}", "--rdzv-backend=c10d",
            "--rdzv-endpoint=n1:29400", *flags, TRAIN, str(folder), *more]  # fmt: skip
    environment = {**environment, "PYTHONPATH": os.pathsep.join([environment["PYTHONPATH"], QUICK])}
    running = [
        two[name].start(*argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for name in ("n1", "n2")
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], outputs
    return "".join(outputs)


def test_two_hosts_train_through_the_port_of_torchrun_alone(two, python, environment, key, expected, tmp_path):
    env = {**environment, "PSRING_MODE": "ps", "PSRING_SERVERS_PER_NODE": "1"}
    torchrun(two, python, env, ["--rdzv-id=train"], tmp_path, each=2)
    result = result_in(tmp_path)
    assert_same_training(result, expected(4))
    assert (result["hosts"], result["servers"]) == (["n1", "n1", "n2", "n2"], 2)


def test_a_restart_resumes_from_the_checkpoint(two, python, environment, key, expected, tmp_path):
    output = torchrun(two, python, environment, ["--rdzv-id=restart", "--max-restarts=1"], tmp_path, "--fail-at=20")
    assert "ValueError: no batch 20" in output
    result = result_in(tmp_path)
    assert result["resumed_at"] >= 19
    assert_same_training(result, expected(2))


def test_the_first_hosts_own_name_may_be_loopback_there(python, environment, key, expected, tmp_path):
    """As Debian's /etc/hosts has it. The other host finds it by that name."""
    two = hosts.Hosts(str(tmp_path), "n1", "n2")
    try:
        table = tmp_path / "of-n1"
        table.write_text("127.0.0.1 localhost\n127.0.1.1 n1\n10.213.0.2 n2\n")
        two["n1"].run("mount", "--bind", str(table), "/etc/hosts")
        two["n1"].run("ip", "route", "add", "default", "dev", "eth0")
        (tmp_path / "trained").mkdir()
        torchrun(two, python, environment, ["--rdzv-id=debian"], tmp_path / "trained")
        assert_same_training(result_in(tmp_path / "trained"), expected(2))
    finally:
        two.close()


def test_a_restart_that_only_one_host_counts(two, python, environment, key, expected, tmp_path):
    """Rank 0 waits in init() when rank 1 is killed: the first host's torchrun does not see its own fail."""
    torchrun(two, python, environment, ["--rdzv-id=killed", "--max-restarts=1"], tmp_path, "--kill-first-start-of=1")
    assert_same_training(result_in(tmp_path), expected(2))
