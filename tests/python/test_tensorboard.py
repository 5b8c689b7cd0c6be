"""What TensorBoard's own reader finds in what psring writes for it."""

import glob
import os
import subprocess

import pytest

import ranks

pytestmark = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in writes no events"
)


def runs(folder):
    """The runs in a folder, by name without its date."""
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard: pip install tensorboard"
    )
    found = {}
    for path in glob.glob(os.path.join(folder, "*")):
        run = reader.EventAccumulator(path, size_guidance={reader.HISTOGRAMS: 0})
        run.Reload()
        found[os.path.basename(path).rsplit("-", 2)[0]] = run
    return found


def text(run, tag):
    return run.Tensors(f"{tag}")[0].tensor_proto.string_val[0].decode()


def launch(folder, *arguments):
    pytest.importorskip("tensorboard", reason="no tensorboard: pip install tensorboard")
    if not os.path.exists(ranks.WORKER):
        pytest.skip("the built-in trainer is not built: ./psring build")
    ran = subprocess.run(
        [ranks.PROGRAM, "launch", f"--tensorboard={folder}", "--workers=2", *arguments, "--model=mlp:784-16-10",
         "--data=digits:train=256,test=64", "--batch-size=8", "--epochs=2", "--lr=0.125", "--threads=1",
         "--device=cpu"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran


def test_the_trainer_tells_of_its_training(tmp_path):
    launch(tmp_path, "--mode=ring", "--")
    (run,) = runs(tmp_path).values()
    scalars = run.Tags()["scalars"]
    for tag in ("step/loss", "step/images_per_second", "step/compute_seconds", "step/exposed_seconds",
                "epoch/test_accuracy", "end/bytes_sent", "end/peak_memory_bytes"):  # fmt: skip
        assert tag in scalars
    assert [event.step for event in run.Scalars("epoch/test_accuracy")] == [16, 32]
    assert {event.value for event in run.Scalars("step/learning_rate")} == {0.125}
    assert run.Scalars("step/loss")[-1].step == 32
    assert "| --batch-size | 8 |" in text(run, "flags")
    assert "worker 0, worker 1" in text(run, "hardware")
    assert "| mode | ring |" in text(run, "start")


def test_servers_tell_how_stale_gradients_were(tmp_path):
    launch(tmp_path, "--mode=ps", "--servers=2", "--", "--sync=async")
    found = runs(tmp_path)
    assert sorted(found) == ["ps-async", "server-0", "server-1"]
    for server in ("server-0", "server-1"):
        (event,) = found[server].Histograms("end/staleness_histogram")
        histogram = event.histogram_value
        assert histogram.num == sum(histogram.bucket) >= 2 * 32
        assert histogram.max == found[server].Scalars("end/staleness_max")[0].value


def test_a_folder_that_cannot_be_written_does_not_end_the_training():
    ran = launch("/dev/null", "--mode=ring", "--")
    assert ran.stdout.count("--tensorboard: cannot write /dev/null/") == 1


def log_a_little():
    import psring

    psring.init()
    for step in range(3):
        psring.log(step=step, loss=step / 2, words=7)
    psring.log(step=3, accuracy=0.25)
    with pytest.raises(ValueError, match="accuracy=73.0.*divide percent by 100"):
        psring.log(step=4, accuracy=73.0)
    return psring.rank()


def test_log_of_rank_0_goes_there_too(tmp_path):
    pytest.importorskip("tensorboard", reason="no tensorboard: pip install tensorboard")
    assert ranks.run(log_a_little, env={"PSRING_TENSORBOARD": str(tmp_path)}) == [0, 1]
    (run,) = runs(tmp_path).values()
    assert [(event.step, event.value) for event in run.Scalars("step/loss")] == [(0, 0), (1, 0.5), (2, 1)]
    assert run.Scalars("step/words")[0].value == 7
    assert run.Scalars("epoch/test_accuracy")[0].value == 0.25
