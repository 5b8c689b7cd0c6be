"""What all engines' tests share. Each engine runs where it is installed: ./psring test --engines installs all."""

import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "python")]

from hosts import wait_for  # noqa: E402

TRAIN = os.path.join(HERE, "train.py")


@pytest.fixture(scope="session")
def psring():
    return os.environ.get("PSRING_PROGRAM") or os.path.join(ROOT, "bazel-bin", "cli", "psring")


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """Of a user's shell: the package, the library, and a home with a key."""
    home = tmp_path_factory.mktemp("home")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PSRING_", "SLURM_"))}
    return {
        **kept, "HOME": str(home), "XDG_CONFIG_HOME": "", "PYTHONPATH": os.path.join(ROOT, "python"),
        "PSRING_LIBRARY": os.environ["PSRING_LIBRARY"], "OMP_NUM_THREADS": "1",
    }  # fmt: skip


@pytest.fixture(scope="session")
def key(psring, environment):
    """The key in that home, as `psring keygen` makes it."""
    subprocess.run([psring, "keygen"], env=environment, check=True, capture_output=True)
    return os.path.join(environment["HOME"], ".config", "psring", "key")


def come_to(folder, step, size, running=None):
    """Process ids, by rank, of the workers that have come to `step` and wait there. `running`: the
    job's future; where the job ends before, with its error."""
    files = [os.path.join(folder, f"at-{step}.{rank}") for rank in range(size)]

    def all_are_there():
        if running is not None and running.done():
            raise AssertionError(f"the job ended before step {step}: {running.result()}")
        return all(os.path.exists(file) for file in files)

    wait_for(all_are_there, f"{size} workers at step {step}")
    return [int(open(file).read()) for file in files]


def result_in(folder):
    with open(os.path.join(folder, "result.json")) as file:
        return json.load(file)


@pytest.fixture(scope="session")
def expected(psring, environment, tmp_path_factory):
    """What `psring run` ends with, by the number of ranks."""
    results = {}

    def of(size):
        if size not in results:
            folder = tmp_path_factory.mktemp("expected")
            subprocess.run([psring, "run", "-n", str(size), "--", sys.executable, TRAIN, str(folder)],
                           env=environment, check=True, capture_output=True, timeout=120)  # fmt: skip
            results[size] = result_in(folder)
        return results[size]

    return of


def assert_same_training(result, expected):
    """The same weights as `psring run`, and a training that has learnt something."""
    assert result["weights"] == expected["weights"]
    assert result["size"] == expected["size"]
    assert result["accuracy"] > 0.9
