"""The example scripts run to their ends, on several ranks."""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
import torch

from ranks import PROGRAM, PYTHONPATH, ROOT, run_script

EXAMPLES = os.path.join(ROOT, "examples", "python")


@pytest.mark.parametrize(
    "script, size, args, word, env",
    [
        ("mnist_horovod_style.py", 2, ["--epochs=1", "--fp16-allreduce"], "accuracy", {}),
        ("gan.py", 2, ["--epochs=1"], "generator's loss", {}),
        ("accumulate_amp.py", 2, ["--epochs=1"], "scale 1024", {}),
        ("accumulate_amp.py", 2, ["--epochs=1", "--update=fused"], "scale 1024", {}),
        ("elastic.py", 2, ["--epochs=1"], "epoch 0: loss", {}),
        ("model_parallel_replicas.py", 4, ["--steps=40"], "step 39", {}),
        ("pipeline.py", 4, ["--steps=40"], "step 39", {}),
        ("collectives.py", 3, ["--rounds=3", "--bytes=4,1M"], "| all_to_all_single | 1,048,576 |", {}),
        ("throughput.py", 2, ["--steps=2", "--warm-up=1", "--batch-size=2"], "ms a step", {}),
        ("resnet_cifar.py", 2, ["--steps=3", "--sync-batch-norm"], "images/s", {"PSRING_METRICS_DIR": "metrics"}),
    ],
)
def test_example(tmp_path, script, size, args, word, env):
    (tmp_path / "metrics").mkdir()
    env = {k: str(tmp_path / v) for k, v in env.items()}
    ranks = run_script(os.path.join(EXAMPLES, script), size, args=args, env=env, timeout=200)
    for rank, (code, out, err) in enumerate(ranks):
        assert code == 0, err
        assert (word in out) == (rank == 0)
    assert not env or len(os.listdir(tmp_path / "metrics")) == size


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY") or not os.path.exists(PROGRAM), reason="psring is not built")
@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_a_run_that_sigterm_has_ended_goes_on_with_the_same_bits(tmp_path, mode):
    def start(name, epochs):
        command = [PROGRAM, "run", "-n", "2", f"--mode={mode}", "--", sys.executable, os.path.join(EXAMPLES, "resume.py")]
        return subprocess.Popen(
            [*command, f"--checkpoint={tmp_path / name}", f"--epochs={epochs}"], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    stopped = start("parts.pt", 1000)
    for line in stopped.stdout:
        if "epoch 1: loss" in line:
            stopped.send_signal(signal.SIGTERM)
            break
    said = stopped.communicate(timeout=120)[0]
    assert stopped.returncode == 75, said
    [epoch] = re.findall(r"saved after batch \d+ of epoch (\d+)", said)
    shutil.copy(tmp_path / "parts.pt", tmp_path / "stopped.pt")
    for name in ("whole.pt", "parts.pt"):
        run = start(name, int(epoch) + 2)
        said = run.communicate(timeout=120)[0]
        assert run.returncode == 0, said
    begin = torch.load(tmp_path / "stopped.pt")["begin"]
    assert f"begins at batch {begin['batch']} of epoch {begin['epoch']}" in said
    whole, parts = (torch.load(tmp_path / name)["model"] for name in ("whole.pt", "parts.pt"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_lightning_trains():
    pytest.importorskip("lightning", reason="lightning is not installed: ./psring test --frameworks installs it")
    ranks = run_script(os.path.join(EXAMPLES, "lightning_digits.py"), 2, args=["--epochs=4"], timeout=200, fresh=True)
    assert [code for code, _, _ in ranks] == [0, 0], ranks
    assert float(ranks[0][1].split("accuracy ")[1]) > 0.5 and "accuracy" not in ranks[1][1]


def test_mlflow_has_the_settings_and_figures_of_rank_0(tmp_path):
    pytest.importorskip("mlflow", reason="no mlflow: pip install mlflow-skinny")
    script = os.path.join(EXAMPLES, "mlflow_digits.py")
    for code, _, err in run_script(script, 2, args=["--epochs=1", f"--store={tmp_path}/store"], timeout=200, fresh=True):
        assert code == 0, err
    (run,) = (figures.parent for figures in tmp_path.glob("store/*/*/metrics"))
    assert (run / "params" / "workers").read_text() == "2"
    # Time, value, step.
    losses = [line.split() for line in (run / "metrics" / "loss").read_text().splitlines()]
    assert [int(step) for _, _, step in losses] == list(range(1, 4000 // 2 // 32 + 1))
    assert float(losses[-1][1]) < float(losses[0][1])
    assert (run / "metrics" / "accuracy").read_text().split()[2] == losses[-1][2]


no_speed = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in has no speed"
)


@no_speed
def test_benchmark_measures():
    command = [sys.executable, os.path.join(EXAMPLES, "benchmark.py"), "import", "alone", "--rounds=1", "--steps=3"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr
    figures = [float(line.split()[0]) for line in ran.stdout.splitlines()]
    assert len(figures) == 2 and all(0 < figure < 30 for figure in figures), ran.stdout


@no_speed
def test_benchmark_measures_what_the_page_costs():
    if not (os.path.exists(PROGRAM) or shutil.which("psring")):
        pytest.skip("psring is not built: ./psring build")
    command = [sys.executable, os.path.join(EXAMPLES, "benchmark.py"), "page"]
    command += ["--workers=3", "--rounds=2", "--seconds=2"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200)
    # It ends with an error where the page does not send events, or /metrics does not have all workers.
    assert ran.returncode == 0, ran.stderr
    figures = [float(line.split()[0]) for line in ran.stdout.splitlines()]
    step, ratio, cpu_ratio, coordinator, more, of_a_step, of_all = figures
    assert 0 < step < 1000 and 0 < ratio < 30 and 0 < cpu_ratio < 30, ran.stdout
    assert 0 < coordinator < 1000 and abs(more) < 1000, ran.stdout
    assert of_a_step == pytest.approx(more / 10, abs=0.001) and abs(of_all) < 100, ran.stdout
