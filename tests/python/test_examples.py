"""The example scripts run to their ends, on several ranks."""

import os

import pytest

from ranks import HERE, run_script

EXAMPLES = os.path.join(HERE, "..", "..", "examples", "python")


@pytest.mark.parametrize(
    "script, size, args, word, env",
    [
        ("mnist_horovod_style.py", 2, ["--epochs=1", "--fp16-allreduce"], "accuracy", {}),
        ("gan.py", 2, ["--epochs=1"], "generator's loss", {}),
        ("accumulate_amp.py", 2, ["--epochs=1"], "scale 1024", {}),
        ("accumulate_amp.py", 2, ["--epochs=1", "--update=fused"], "scale 1024", {}),
        ("model_parallel_replicas.py", 4, ["--steps=40"], "step 39", {}),
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
