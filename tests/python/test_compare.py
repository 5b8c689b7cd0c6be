"""psring compare on a script: real runs in every way, their figures, and a study that goes on."""

import json
import os
import signal
import struct
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch")

from ranks import PROGRAM, PYTHONPATH, WORKER

pytestmark = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY") or not os.path.exists(PROGRAM),
    reason="PSRING_LIBRARY is not set, or the programs are not built: ./psring build",
)

# As users write them: main() has returned, and its model is gone, when the job ends.
SCRIPT = """
import os, time, torch, psring.torch as ps

def main():
    ps.init()
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ.get("PSRING_SEED", 0)))
    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 2))
    optimizer = ps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model=model)
    data = torch.Generator().manual_seed(ps.rank())
    for epoch in range(4):
        for _ in range(25):
            x = torch.randn(32, 20, generator=data)
            loss = torch.nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        optimizer.synchronize_parameters()
        x = torch.randn(1000, 20, generator=torch.Generator().manual_seed(99))
        accuracy = (model(x).argmax(1) == (x.sum(1) > 0)).float().mean().item()
        TELL
    print("done", flush=True)

main()
"""
LOGS = "ps.log(accuracy=accuracy, loss=loss)"
PRINTS = 'print(f"epoch {epoch}: accuracy {100 * accuracy:.1f}%", flush=True)'


class Study:
    def __init__(self, folder, tell, flags):
        self.folder, self.script = folder, folder / "train.py"
        self.script.write_text(SCRIPT.replace("TELL", tell))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PSRING_")}
        self.env = {**kept, "PYTHONPATH": PYTHONPATH, "PSRING_LIBRARY": os.environ["PSRING_LIBRARY"], "HOME": str(folder)}
        self.command = [PROGRAM, "compare", *flags, f"--out={folder}/study", "--", sys.executable, str(self.script)]

    def start(self):
        return subprocess.Popen(self.command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self):
        """What it prints, and its report as a dictionary and as a page."""
        ran = subprocess.run(self.command, env=self.env, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        out = self.folder / "study"
        return ran.stdout, json.loads((out / "report.json").read_text()), (out / "report.html").read_text()

    def kept(self):
        """When each run's file was written, by its name."""
        return {path.name: path.stat().st_mtime_ns for path in (self.folder / "study").glob("runs/run-*.json")}


def test_the_user_says_how_long_workers_may_take_to_come(tmp_path):
    study = Study(tmp_path, LOGS, ["--modes=ring", "--workers=2"])
    study.script.write_text("import os, psring\nif os.environ['PSRING_RANK'] == '0':\n    psring.init()")
    study.env["PSRING_JOIN_TIMEOUT_S"] = "1.5"
    ran = subprocess.run(study.command, env=study.env, capture_output=True, text=True, timeout=120)
    assert "the job is not complete after 1.5 s" in ran.stdout + ran.stderr, ran.stdout + ran.stderr


def by_way(report):
    runs = {}
    for run in report["runs"]:
        runs.setdefault(run["point"]["mode"], []).append(run)
    return runs


def test_a_script_in_four_ways_with_two_seeds_and_an_interruption(tmp_path):
    study = Study(tmp_path, LOGS, ["--modes=ring,ps-bsp,ps-async,ddp", "--workers=2", "--seeds=2"])
    with study.start() as first:
        end = time.monotonic() + 240
        while len(study.kept()) < 2 and first.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        first.send_signal(signal.SIGINT)
        said = first.communicate(timeout=120)[0]
    kept = study.kept()
    assert first.returncode == 130 and f"{len(kept)} of 8 runs are kept" in said, said
    assert 2 <= len(kept) < 8

    out, report, page = study.finish()
    assert f"{len(kept)} of 8 runs are in {tmp_path}/study already" in out
    now = study.kept()
    assert len(now) == 8 and {name: now[name] for name in kept} == kept
    assert "ps-bsp and ring ended with identical weights" in out and "nan" not in out

    runs = by_way(report)
    assert {way: len(of) for way, of in runs.items()} == {"ring": 2, "ps-bsp": 2, "ps-async": 2, "ddp": 2}
    for run in report["runs"]:
        assert run["num_steps"] == 100 and run["num_parameters"] == 20 * 50 + 50 + 50 * 2 + 2
        assert [(epoch["epoch"], epoch["step"]) for epoch in run["epochs"]] == [(i, 25 * i) for i in range(1, 5)]
        assert run["test_accuracy"] > 0.8
        assert 0 < run["seconds"] < run["wall_seconds"]
        assert run["images_per_second"] == pytest.approx(100 / run["seconds"])
        assert run["worker_peak_bytes"] > 50e6
    assert all(run["worker_bytes_sent_per_step"] > 0 for way in ("ring", "ps-bsp", "ps-async") for run in runs[way])

    # The seed makes the weights, and the synchronous ways end with the same bits; one sum of two has no order.
    weights = {way: [run["weights_crc32"] for run in of] for way, of in runs.items()}
    assert None not in weights["ring"] and len(set(weights["ring"])) == 2
    assert weights["ring"] == weights["ps-bsp"] == weights["ddp"] != weights["ps-async"]
    assert report["identical_weights"] is True

    for text in ("train.py (1,152 parameters) is run in each way", "Steps a second", "torch.distributed"):
        assert text in page
    for text in ("lenet", "--batch-size", "Images a second", "nan"):
        assert text not in page.split("<script>")[0]


def test_a_script_that_prints_its_accuracy(tmp_path):
    # Between pauses, so that compare reads it between the two steps on a busy host, too.
    prints = f"time.sleep(0.3)\n        {PRINTS}\n        time.sleep(2.5)"
    study = Study(tmp_path, prints, ["--modes=ring", "--workers=2", "--metric=accuracy ([0-9.]+)"])
    study.script.write_text(study.script.read_text().replace("range(4)", "range(2)"))
    out, report, page = study.finish()
    (run,) = report["runs"]
    # Between the steps of which the metrics say when they were.
    assert [epoch["step"] for epoch in run["epochs"]] == pytest.approx([25, 50], abs=2)
    # As long as the script has trained, not as long as Python has needed to start.
    seconds = [epoch["seconds"] for epoch in run["epochs"]]
    assert seconds == sorted(seconds) and 0 < seconds[0]
    assert seconds[-1] < run["wall_seconds"]
    assert run["test_loss"] is None and "nan" not in out and ">nan<" not in page


def write_digits(folder, shade):
    """MNIST's files, of 64 images of one shade."""
    folder.mkdir(exist_ok=True)
    for kind in ("train", "t10k"):
        (folder / f"{kind}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, 64, 28, 28) + bytes([shade]) * 64 * 784)
        (folder / f"{kind}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 64) + bytes(range(8)) * 8)


@pytest.mark.skipif(not os.path.exists(WORKER), reason="no worker is built")
def test_a_study_does_not_go_on_with_other_data(tmp_path):
    write_digits(tmp_path / "digits", 10)
    command = [
        PROGRAM, "compare", "--modes=ring,ps-bsp", "--workers=1", "--model=mlp:784-10", "--steps=4", "--batch-size=16",
        f"--data=mnist:{tmp_path / 'digits'}", f"--out={tmp_path / 'study'}", "--", "--device=cpu",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (tmp_path / "study" / "runs" / "run-001.json").unlink()  # as if it had stopped there
    write_digits(tmp_path / "digits", 20)
    resumed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    said = resumed.stdout + resumed.stderr
    assert resumed.returncode == 1 and "restore the files of --data, or choose another --out" in said, said
    assert said.count("mnist,crc32=") == 2, said
