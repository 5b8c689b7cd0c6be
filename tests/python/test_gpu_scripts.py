"""tools/gpu/: what of the scripts for hosts with a GPU a CPU can run, so that they are right when one is there."""

import os
import subprocess
import sys

import pytest

from ranks import PROGRAM, PYTHONPATH, ROOT

SCRIPTS = os.path.join(ROOT, "tools", "gpu")
NAMES = sorted(name for name in os.listdir(SCRIPTS) if name[0].isdigit())


def test_there_is_no_script_that_is_not_tried():
    assert [name[:2] for name in NAMES] == [f"{i}_" for i in range(1, len(NAMES) + 1)] and len(NAMES) >= 9


@pytest.mark.parametrize("name", NAMES)
def test_a_script_runs_on_a_cpu_as_far_as_it_can(name, tmp_path):
    if not os.path.exists(PROGRAM) or not os.environ.get("PSRING_LIBRARY"):
        pytest.skip("PSRING_LIBRARY is not set, or the programs are not built: ./psring build")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PSRING_") or key == "PSRING_LIBRARY"}
    env = {**kept, "PYTHONPATH": PYTHONPATH, "PSRING": PROGRAM, "PYTHON": sys.executable, "OUT": str(tmp_path)}
    ran = subprocess.run(
        [os.path.join(SCRIPTS, name), "--device=cpu"], cwd=tmp_path, env=env, timeout=300,
        capture_output=True, text=True,
    )  # fmt: skip
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0 and "WRONG" not in said, said
    if "nothing of it runs on a CPU" not in said:
        stem = name.removesuffix(".sh")
        assert said.endswith(f"{stem}: all is well\n"), said
        assert (tmp_path / stem / "output.txt").read_text() == ran.stdout
