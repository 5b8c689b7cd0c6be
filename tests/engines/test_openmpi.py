"""Jobs that Open MPI starts on two hosts, reached by an rsh of ours."""

import shutil
import subprocess
import sys

import pytest

import hosts
from conftest import TRAIN, assert_same_training, result_in

WHY_NOT = hosts.why_not() if shutil.which("mpirun") else "no mpirun (Debian: apt-get install openmpi-bin)"
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


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

    def run(*argv, env=None, check=True):
        # n1's network, name and table of hosts, but the machine's processes, so that it reaches all hosts.
        table = f"mount --bind {folder}/hosts /etc/hosts && exec \"$@\""
        prefix = ["nsenter", "-t", str(two["n1"].pid), "-n", "-u", "unshare", "--mount", "sh", "-c", table, "sh"]
        given = {**environment, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **(env or {})}
        names = [name for name in given if name.startswith(("PSRING_", "PYTHONPATH", "HOME", "XDG", "OMP_"))]
        ran = subprocess.run(
            [*prefix, "mpirun", "--mca", "plm_rsh_agent", str(agent), "--mca", "btl_tcp_if_include", "eth0",
             *(word for name in names for word in ("-x", name)), *argv],
            env=given, capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        assert not check or ran.returncode == 0, ran.stdout + ran.stderr
        return ran

    yield run
    two.close()


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_two_hosts_train_and_nobody_names_the_coordinator(mpirun, expected, tmp_path, mode):
    mpirun("-np", "4", "-H", "n1:2,n2:2", sys.executable, TRAIN, str(tmp_path), env={"PSRING_MODE": mode})
    result = result_in(tmp_path)
    assert_same_training(result, expected(4))
    assert (result["hosts"], result["mode"]) == (["n1", "n1", "n2", "n2"], mode)


def test_the_coordinator_may_be_named(mpirun, expected, tmp_path):
    mpirun("-np", "4", "-H", "n1:2,n2:2", sys.executable, TRAIN, str(tmp_path), env={"PSRING_COORDINATOR": "n1:7000"})
    assert_same_training(result_in(tmp_path), expected(4))
