"""Jobs that Open MPI starts on two hosts, reached by an rsh of ours."""

import shutil
import subprocess
import sys
import time

import pytest

import hosts
import page
from conftest import TRAIN, assert_same_training, come_to, result_in
from hosts import wait_for

WHY_NOT = hosts.why_not() if shutil.which("mpirun") else "no mpirun (Debian: apt-get install openmpi-bin)"
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


class OpenMpi:
    def __init__(self, folder, two, agent, environment):
        self.folder, self.hosts, self.agent, self.environment = folder, two, agent, environment

    def start(self, *argv, env=None, **more):
        # n1's network, name and table of hosts, but the machine's processes, so that it reaches all hosts.
        table = f"mount --bind {self.folder}/hosts /etc/hosts && exec \"$@\""
        pid = str(self.hosts["n1"].pid)
        prefix = ["nsenter", "-t", pid, "-n", "-u", "unshare", "--mount", "sh", "-c", table, "sh"]
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        given = {**self.environment, **as_root, **(env or {})}
        names = [name for name in given if name.startswith(("PSRING_", "PYTHONPATH", "HOME", "XDG", "OMP_"))]
        return subprocess.Popen(
            [*prefix, "mpirun", "--mca", "plm_rsh_agent", str(self.agent), "--mca", "btl_tcp_if_include", "eth0",
             *(word for name in names for word in ("-x", name)), *argv],
            env=given, **more,
        )  # fmt: skip

    def run(self, *argv, env=None):
        job = self.start(*argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = job.communicate(timeout=90)
        finally:
            job.kill()
        assert job.returncode == 0, output


@pytest.fixture(scope="module")
def mpirun(environment, key, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    two = hosts.Hosts(str(folder), "n1", "n2")
    agent = folder / "rsh"
    with open(agent, "w") as file:
        print(f"""#!/bin/sh
case $1 in n1) pid={two["n1"].pid} ;; n2) pid={two["n2"].pid} ;; esac
shift
exec nsenter -t $pid -n -u -m -p -- sh -c "$*"
""", file=file)
    agent.chmod(0o755)
    yield OpenMpi(folder, two, agent, environment)
    two.close()


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_two_hosts_train_and_nobody_names_the_coordinator(mpirun, expected, tmp_path, mode):
    mpirun.run("-np", "4", "-H", "n1:2,n2:2", sys.executable, TRAIN, str(tmp_path), env={"PSRING_MODE": mode})
    result = result_in(tmp_path)
    assert_same_training(result, expected(4))
    assert (result["hosts"], result["mode"]) == (["n1", "n1", "n2", "n2"], mode)


def test_the_coordinator_may_be_named(mpirun, expected, tmp_path):
    env = {"PSRING_COORDINATOR": "n1:7000"}
    mpirun.run("-np", "4", "-H", "n1:2,n2:2", sys.executable, TRAIN, str(tmp_path), env=env)
    assert_same_training(result_in(tmp_path), expected(4))


def test_the_page_of_a_running_job_shows_all_ranks_to_the_other_host(mpirun, tmp_path):
    output = tmp_path / "job.out"
    with open(output, "w") as file:
        job = mpirun.start("-np", "4", "-H", "n1:2,n2:2", sys.executable, TRAIN, str(tmp_path), "--meet-at=5",
                           env=page.variables(tmp_path), stdout=file, stderr=file)  # fmt: skip
    try:
        url, token = page.address_in(output)
        assert url == "http://n1:9470" and token == (tmp_path / "page-token").read_text().strip()
        assert page.hosts_of_workers(mpirun.hosts["n2"].run, url, tmp_path, 4) == ["n1", "n1", "n2", "n2"]
        (tmp_path / "go").touch()
        assert job.wait(timeout=60) == 0, output.read_text()
    finally:
        job.kill()


def test_a_killed_rank_ends_the_job(mpirun, tmp_path):
    job = mpirun.start("-np", "4", "-H", "n1:2,n2:2", sys.executable, TRAIN, str(tmp_path), "--meet-at=5",
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
    try:
        pid = come_to(tmp_path, 5, 4)[3]
        killed = time.monotonic()
        mpirun.hosts["n2"].run("kill", "-KILL", str(pid))
        output, _ = job.communicate(timeout=60)
    finally:
        job.kill()
    print(f"{time.monotonic() - killed:.1f} s after the kill: {output}")
    assert job.returncode != 0 and "rank 3" in output and "n2" in output
    for host in ("n1", "n2"):
        wait_for(lambda host=host: TRAIN not in mpirun.hosts[host].run("ps", "ax", "-o", "args").stdout,
                 f"the end of all ranks of {host}")  # fmt: skip
