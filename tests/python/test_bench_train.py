"""psring bench train, with PyTorch's DistributedDataParallel: bench_test.cc has psring's own ways."""

import json
import os
import subprocess
import sys

import pytest

from ranks import PROGRAM


def test_ddp_trains_every_model_with_every_number_of_workers(tmp_path):
    if not os.path.exists(PROGRAM) or not os.environ.get("PSRING_LIBRARY"):
        pytest.skip("PSRING_LIBRARY is not set, or the programs are not built: ./psring build")
    models = ["mlp:784-32-10", "lenet"]
    command = [PROGRAM, "bench", "train", "--modes=ddp", "--models=" + ",".join(models), "--workers=1,2", "--steps=5"]
    command += ["--data=digits:train=512,test=64", "--device=cpu", "--repetitions=1", f"--out={tmp_path}"]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PSRING_")}
    env = {**kept, "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]}  # the python3 with torch
    ran = subprocess.run(command, env=env, timeout=300, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    trainings = json.loads((tmp_path / "bench.json").read_text())["trainings"]
    assert sorted((t["model"], t["workers"], t["contender"]) for t in trainings) == sorted(
        (model, workers, "ddp") for model in models for workers in (1, 2)
    )
    assert all(t["median_images_per_s"] > 0 and t["peak_memory_bytes"] > 0 for t in trainings), trainings
