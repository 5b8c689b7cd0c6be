"""Scripts started by launchers that know nothing of psring."""

import os
import shutil
import socket
import subprocess
import sys

import pytest

from ranks import PACKAGE

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
    "mpirun": ["mpirun", "-np", "2", "--oversubscribe", sys.executable],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=PORT"],
}


def two_free_ports():
    """The first of two neighbours, for torchrun and for the coordinator, below those that the system gives to connections."""
    for port in range(20000 + os.getpid() % 5000 * 2, 32000, 2):
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no two neighbours are free")


@pytest.mark.parametrize("mode", ["", "ps"])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_tells_ranks_their_places(tmp_path, launcher, mode):
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("no mpirun (Debian: apt-get install openmpi-bin)")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PSRING_")}
    env.update(PYTHONPATH=PACKAGE, PSRING_LIBRARY=os.environ["PSRING_LIBRARY"], OMP_NUM_THREADS="1")
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if mode:
        env["PSRING_MODE"] = mode
    command = [part.replace("PORT", str(two_free_ports())) for part in LAUNCHERS[launcher]]
    ran = subprocess.run([*command, str(script), str(tmp_path)], env=env, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    for rank in range(2):
        assert (tmp_path / str(rank)).read_text() == f"2 {rank} 2 {mode or 'ring'} [2.0, 1.0]\n"


def test_a_taken_port_under_torchrun_is_named_with_the_remedy():
    port = two_free_ports()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    env = {**os.environ, **dict(zip(names, "0202")), "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"}
    env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GROUP_RANK="0", TORCHELASTIC_USE_AGENT_STORE="True")
    with socket.socket() as other:
        other.bind(("127.0.0.1", port + 1))
        other.listen()
        ran = subprocess.run(
            [sys.executable, "-c", "import psring; psring.init()"], env=env, capture_output=True, text=True, timeout=60
        )
    assert ran.returncode != 0
    assert f"cannot listen on tcp://127.0.0.1:{port + 1}" in ran.stderr
    assert "set PSRING_COORDINATOR=HOST:PORT for all workers" in ran.stderr
