"""Scripts started by launchers that know nothing of psring."""

import os
import shutil
import socket
import subprocess
import sys

import pytest

from ranks import PYTHONPATH, free_port

pytestmark = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in knows no launchers"
)

SCRIPT = """
import array, sys, psring
psring.init()
data = array.array("f", [1.0, psring.rank()])
psring.allreduce_(data, op=psring.Sum)
with open(f"{sys.argv[1]}/{psring.rank()}", "w") as file:
    print(psring.size(), psring.local_rank(), psring.local_size(), psring.mode(), data.tolist(), file=file)
"""

LAUNCHERS = {
    "mpirun": ["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none", sys.executable],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=PORT"],
}


@pytest.mark.parametrize("mode", ["", "ps"])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_tells_ranks_their_places(tmp_path, launcher, mode):
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("no mpirun (Debian: apt-get install openmpi-bin)")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PSRING_")}
    env.update(PYTHONPATH=PYTHONPATH, PSRING_LIBRARY=os.environ["PSRING_LIBRARY"], OMP_NUM_THREADS="1")
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if mode:
        env["PSRING_MODE"] = mode
    command = [part.replace("PORT", str(free_port(2))) for part in LAUNCHERS[launcher]]
    ran = subprocess.run([*command, str(script), str(tmp_path)], env=env, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stderr
    for rank in range(2):
        assert (tmp_path / str(rank)).read_text() == f"2 {rank} 2 {mode or 'ring'} [2.0, 1.0]\n"


def under_torchrun(port, script, *args):
    env = {name: value for name, value in os.environ.items() if not name.startswith("PSRING_")}
    env.update(PYTHONPATH=PYTHONPATH, PSRING_LIBRARY=os.environ["PSRING_LIBRARY"], OMP_NUM_THREADS="1")
    command = [part.replace("PORT", str(port)) for part in LAUNCHERS["torchrun"]]
    return subprocess.run([*command, str(script), *args], env=env, capture_output=True, text=True, timeout=180)


GROUP = '''
import torch.distributed, psring.torch
torch.distributed.init_process_group("psring")
'''


@pytest.mark.parametrize("begin", ["", GROUP], ids=["init", "init_process_group"])
def test_torchrun_needs_no_port_but_its_own(tmp_path, begin):
    port = free_port(2)
    script = tmp_path / "script.py"
    script.write_text(begin + SCRIPT)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port + 1))
        other.listen()
        ran = under_torchrun(port, script, str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "1").read_text() == "2 1 2 ring [2.0, 1.0]\n"


def test_under_torchrun_all_learn_why_rank_0_hosts_no_coordinator(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time, traceback, psring\n"
        "try:\n"
        "    psring.init('ps', servers=0 if os.environ['RANK'] == '0' else 1)\n"
        "except Exception:\n"
        "    traceback.print_exc()\n"
        "    if os.environ['RANK'] == '1':\n"
        "        open(sys.argv[1], 'w').close()\n"
        "    while not os.path.exists(sys.argv[1]):\n"
        "        time.sleep(0.05)  # torchrun ends the other with this one\n"
        "    sys.exit(1)\n"
    )
    ran = under_torchrun(free_port(2), script, str(tmp_path / "told"))
    assert ran.returncode != 0
    assert "worker 0 could not start the job: InvalidArgumentError: " in ran.stderr, ran.stderr


PSRING = os.path.join(os.path.dirname(os.environ.get("PSRING_LIBRARY", "")), "..", "..", "cli", "psring")


def psring_run(args, **variables):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PSRING_", "SLURM_", "PET_"))}
    return subprocess.run([PSRING, "run", *args], env={**env, **variables}, capture_output=True, text=True, timeout=60)


POD = {"PSRING_SIZE": "4", "JOB_COMPLETION_INDEX": "2"}


@pytest.mark.parametrize("args, variables, says", [
    (["--mode=ps", "--servers-per-node=2"], POD, ["PSRING_MODE=ps", "PSRING_SERVERS_PER_NODE=2"]),
    (["--mode=ps", "--servers=3"], {**POD, "PSRING_SERVERS_PER_NODE": "2"},
     ["PSRING_SERVERS=3", "PSRING_SERVERS_PER_NODE=0"]),
    (["--sync=async", "--mode=ps", "--insecure"], POD, ["PSRING_SYNC=async", "PSRING_INSECURE=1"]),
    (["--mode=ps"], {"PSRING_RANK": "1", "PSRING_SIZE": "3"}, ["PSRING_MODE=ps", "PSRING_RANK=1", "PSRING_SIZE=3"]),
    (["-n1", "--mode=ps", "--servers-per-node=2"], {}, ["[worker 0] PSRING_SERVERS=2", "[worker 0] PSRING_NODES=1"]),
])  # fmt: skip
def test_psring_run_hands_its_flags_to_the_worker_that_it_becomes(args, variables, says):
    ran = psring_run([*args, "--", "env"], **variables)
    assert ran.returncode == 0, ran.stderr
    assert set(says) <= set(ran.stdout.splitlines())


@pytest.mark.parametrize("args, variables, says", [
    (["--mode=ps", "--servers=1", "--servers-per-node=1"], {}, "--servers and --servers-per-node: give one"),
    (["--servers-per-node=1"], {}, "--servers-per-node needs --mode=ps; the mode is ring"),
    (["--compress=zz"], {}, '--compress (compress= in Python): "zz" is none of'),
    (["--insecure", "--require-encryption"], {}, "--insecure contradicts --require-encryption"),
    (["--coordinator=127.0.0.1:7100"], {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
     "Open MPI started this command 2 times, and with this flag each would start a job of its own"),
    (["--log-dir=logs"], POD, "--log-dir: Kubernetes started this process"),
    (["--max-restarts=1"], POD, "--max-restarts: Kubernetes started this process"),
    (["--torchrun-variables"], POD, "--torchrun-variables: Kubernetes started this process, and psring sets them only for"),
    ([], {"SLURM_PROCID": "9", "SLURM_NTASKS": "3", "SLURM_STEP_ID": "0"}, "SLURM_PROCID=9 is not below SLURM_NTASKS=3"),
    ([], {"PET_NNODES": "2", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "3"},
     "Kubeflow Trainer started this command 2 times and does not say where rank 0 is: set PSRING_COORDINATOR=HOST:PORT"),
    ([], {"PSRING_SIZE": "3"}, "PSRING_SIZE=3 is set, but nothing says which of them this process is"),
    ([], {"PSRING_RANK": "1"}, "PSRING_RANK=1 is set, but PSRING_SIZE, the number of workers, is not"),
    ([], {"PSRING_SIZE": "2", "JOB_COMPLETION_INDEX": "5"}, "JOB_COMPLETION_INDEX=5 is not below PSRING_SIZE=2"),
])  # fmt: skip
def test_psring_run_refuses_what_contradicts_its_launcher(args, variables, says):
    ran = psring_run([*args, "--", "env"], **variables)
    assert ran.returncode == 2
    assert says in ran.stderr


def test_a_worker_of_any_launcher_may_start_a_job_of_its_own(tmp_path):
    inner = tmp_path / "inner.py"
    inner.write_text("import psring\npsring.init()\nprint(f'inner {psring.rank()} of {psring.size()}')\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import subprocess, sys, psring\n"
        "psring.init()\n"
        f"command = [{PSRING!r}, 'run', '-n', '2', '--', sys.executable, {str(inner)!r}]\n"
        "if psring.rank() == 0:\n"
        "    print(subprocess.run(command, capture_output=True, text=True, timeout=120))\n"
        "print(f'outer {psring.sum(1)}')\n"
    )
    ran = under_torchrun(free_port(2), script)
    assert ran.returncode == 0, ran.stderr
    assert "inner 0 of 2" in ran.stdout and "inner 1 of 2" in ran.stdout and ran.stdout.count("outer 2") == 2
