"""Jobs under a real Slurm of two nodes."""

import os
import sys
import time

import pytest

import page
import slurm
from conftest import ROOT, TRAIN, assert_same_training, come_to, result_in
from hosts import wait_for

pytestmark = pytest.mark.skipif(bool(slurm.why_not()), reason=slurm.why_not())


@pytest.fixture(scope="module")
def cluster(environment, key, tmp_path_factory):
    cluster = slurm.Slurm(str(tmp_path_factory.mktemp("slurm")), environment)
    yield cluster
    cluster.close()


@pytest.mark.parametrize("flags, servers", [
    ([], 0), (["--mode=ps", "--servers=2"], 2), (["--mode=ps", "--servers-per-node=1"], 2),
])  # fmt: skip
def test_srun_starts_a_worker_for_each_task_on_two_nodes(cluster, psring, expected, tmp_path, flags, servers):
    cluster.run("srun", "-N", "2", "-n", "3", psring, "run", *flags, "--", sys.executable, TRAIN, str(tmp_path),
                timeout=120)  # fmt: skip
    result = result_in(tmp_path)
    assert_same_training(result, expected(3))
    assert sorted(set(result["hosts"])) == ["n1", "n2"]
    assert (result["mode"], result["servers"]) == ("ps" if servers else "ring", servers)


def test_a_task_on_each_node_may_start_several_workers(cluster, psring, expected, tmp_path):
    cluster.run("srun", "-N", "2", "-n", "2", psring, "run", "-n", "2", "--mode=ps", "--servers-per-node=1", "--",
                sys.executable, TRAIN, str(tmp_path), timeout=120)  # fmt: skip
    result = result_in(tmp_path)
    assert_same_training(result, expected(4))
    assert result["hosts"] == ["n1", "n1", "n2", "n2"]
    assert result["servers"] == 2


@pytest.mark.parametrize("size, tasks, command", [
    (3, 3, []), (3, 3, ["psring", "run", "--"]), (4, 2, ["psring", "run", "-n", "2", "--"]),
])  # fmt: skip
def test_the_page_of_a_running_job_shows_all_workers_to_other_hosts(cluster, psring, tmp_path, size, tasks, command):
    command = [psring if word == "psring" else word for word in command]
    output = tmp_path / "job.out"
    job = cluster.start("srun", "-N2", f"-n{tasks}", f"--output={output}", *command, sys.executable, TRAIN,
                        str(tmp_path), "--meet-at=5", env=page.variables(tmp_path))  # fmt: skip
    come_to(tmp_path, 5, size)
    url, token = page.address_in(output)
    assert url == "http://n1:9470" and token == (tmp_path / "page-token").read_text().strip()
    hosts = page.hosts_of_workers(cluster.run, url, tmp_path, size)
    assert hosts == ["n1", "n1", "n2", "n2"][:size]
    (tmp_path / "go").touch()
    job.communicate(timeout=60)
    assert job.returncode == 0, output.read_text()


def test_without_a_key_the_error_says_what_to_type(cluster, psring, tmp_path):
    ran = cluster.run("srun", "-N", "2", "-n", "2", psring, "run", "--", sys.executable, TRAIN, str(tmp_path),
                      env={"HOME": str(tmp_path), "PSRING_JOIN_TIMEOUT_S": "5"}, check=False)  # fmt: skip
    assert ran.returncode != 0
    assert "psring keygen" in ran.stderr


def test_a_killed_worker_ends_the_job_with_its_name(cluster, psring, tmp_path):
    job = cluster.start("srun", "-N", "2", "-n", "3", psring, "run", "--", sys.executable, TRAIN, str(tmp_path),
                        "--meet-at=5")  # fmt: skip
    pid = come_to(tmp_path, 5, 3)[2]
    killed = time.monotonic()
    cluster.hosts["n2"].run("kill", "-KILL", str(pid))
    output, _ = job.communicate(timeout=60)
    print(f"{time.monotonic() - killed:.1f} s after the kill: {output}")
    assert time.monotonic() - killed < 30
    assert job.returncode != 0
    assert f"worker 2 (host n2, pid {pid}" in output


def test_scancel_ends_all_workers(cluster, psring, tmp_path):
    job = cluster.start("srun", "-N", "2", "-n", "3", "-J", "to-cancel", psring, "run", "--", sys.executable, TRAIN,
                        str(tmp_path), "--meet-at=5")  # fmt: skip
    come_to(tmp_path, 5, 3)
    cluster.run("scancel", "-n", "to-cancel")
    job.communicate(timeout=30)
    for name in ("n1", "n2"):
        wait_for(lambda name=name: TRAIN not in cluster.hosts[name].run("ps", "ax", "-o", "args").stdout,
                 f"the end of all workers of {name}")  # fmt: skip
    wait_for(lambda: cluster.run("squeue", "-h").stdout == "", "an empty queue", seconds=30)


def sbatch(cluster, psring, folder, *flags, script=(), requeues=0):
    """The job of examples/slurm.sbatch that trains `folder` on two nodes."""
    command = [*flags, "--", sys.executable, TRAIN, str(folder), *script]
    return sbatch_command(cluster, psring, folder, command, requeues)


def sbatch_command(cluster, psring, folder, command, requeues):
    return cluster.submit(
        "-N2", "-n3", "--requeue", f"--output={folder}/job.out", "--open-mode=append",
        os.path.join(ROOT, "examples", "slurm.sbatch"), *command,
        env={"PATH": os.path.dirname(psring) + os.pathsep + os.environ["PATH"], **page.variables(folder),
             "REQUEUES": str(requeues)},
    )  # fmt: skip


def test_a_requeued_job_resumes_from_its_checkpoint(cluster, psring, expected, tmp_path):
    number = sbatch(cluster, psring, tmp_path, script=["--meet-at=20"])
    come_to(tmp_path, 20, 3)
    cluster.run("scontrol", "requeue", number)
    wait_for(lambda: os.path.exists(tmp_path / "result.json"), "the end of the job that was requeued", seconds=120)
    result = result_in(tmp_path)
    assert result["resumed_at"] >= 19
    assert_same_training(result, expected(3))
    token = (tmp_path / "page-token").read_text().strip()
    assert (tmp_path / "job.out").read_text().count(f"the job's page: http://n1:9470/?token={token}") == 2


def test_a_job_whose_worker_was_killed_is_requeued_where_that_is_asked_for(cluster, psring, expected, tmp_path):
    sbatch(cluster, psring, tmp_path, script=["--meet-at=20"], requeues=1)
    pid = come_to(tmp_path, 20, 3)[2]
    (tmp_path / "go").touch()
    cluster.hosts["n2"].run("kill", "-KILL", str(pid))
    wait_for(lambda: os.path.exists(tmp_path / "result.json"), "the end of the job that was requeued", seconds=120)
    assert result_in(tmp_path)["resumed_at"] >= 19
    assert_same_training(result_in(tmp_path), expected(3))


def test_a_job_that_is_cancelled_is_not_requeued(cluster, psring, tmp_path):
    number = sbatch(cluster, psring, tmp_path, script=["--meet-at=5"], requeues=1)
    come_to(tmp_path, 5, 3)
    cluster.run("scancel", number)
    wait_for(lambda: cluster.run("squeue", "-h").stdout == "", "an empty queue", seconds=60)
    time.sleep(3)
    assert cluster.run("squeue", "-h").stdout == "" and cluster.state(number) in ("CANCELLED", "")


def test_a_job_that_is_asked_to_end_saves(cluster, psring, expected, tmp_path):
    """As 120 s before its limit of time, by the script's --signal: its steps get SIGTERM, srun does not."""
    number = sbatch(cluster, psring, tmp_path, script=["--stop-on-sigterm", "--meet-at=20"])
    come_to(tmp_path, 20, 3)
    cluster.run("scancel", "--signal=TERM", number)
    (tmp_path / "go").touch()
    wait_for(lambda: cluster.run("squeue", "-h").stdout == "", "the job's end", seconds=60)
    assert not (tmp_path / "result.json").exists()
    sbatch(cluster, psring, tmp_path)
    wait_for(lambda: os.path.exists(tmp_path / "result.json"), "the end of the job that goes on", seconds=120)
    assert result_in(tmp_path)["resumed_at"] == 21
    assert_same_training(result_in(tmp_path), expected(3))


def test_the_built_in_trainer_that_saved_is_requeued(cluster, psring, tmp_path):
    """As in a partition with a GraceTime, in which Slurm itself requeues no job that ends."""
    checkpoints, output = tmp_path / "checkpoints", tmp_path / "job.out"
    flags = ["--mode=ring", "--model=mlp:784-32-10", "--data=digits:train=960,test=100", "--batch-size=8", "--epochs=40"]
    flags += [f"--checkpoint-dir={checkpoints}", "--autoresume", "--stopped-exit-code=75", "--slow=worker:0:x3"]
    number = sbatch_command(cluster, psring, tmp_path, ["worker", *flags], requeues=1)
    wait_for(lambda: output.exists() and "epoch 2 " in output.read_text(), "the second epoch", seconds=60)
    cluster.run("scancel", "--signal=TERM", number)
    wait_for(lambda: cluster.run("squeue", "-h").stdout == "", "the end of the job that was requeued", seconds=240)
    assert cluster.state(number) in ("COMPLETED", "")
    text = output.read_text()
    assert text.count("epoch 40 ") == 1 and text.count("epoch 2 ") == 1 and "resume" in text


def test_a_node_that_dies_ends_the_job_with_its_name(cluster, psring, tmp_path):
    """The last test: it takes a node from the cluster."""
    sbatch(cluster, psring, tmp_path, script=["--meet-at=5"])
    come_to(tmp_path, 5, 3)
    died = time.monotonic()
    cluster.hosts["n2"].die()
    output = tmp_path / "job.out"
    wait_for(lambda: "worker 2 (host n2" in output.read_text(), "the name of the node that died", seconds=30)
    print(f"{time.monotonic() - died:.1f} s after the death of the node: {output.read_text()}")
