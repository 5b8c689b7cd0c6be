"""The wheel as a user meets it: installed by pip into bare environments of every Python at hand.

PSRING_WHEEL names the wheel; ./psring test --wheel makes one and runs this.
"""

import glob
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]
WAYS = {"ring": [], "ps": ["--mode=ps", "--servers=2"]}
# What manylinux supposes that every host has. The rest the wheel brings.
OF_THE_HOST = re.compile(r"(ld-linux.*|libc|libm|libpthread|libdl|librt|libresolv|libgcc_s|libstdc\+\+|libz)\.so\.\d")
# It has been 6.3 MB.
MOST_BYTES = 10e6


@pytest.fixture(scope="session")
def wheel():
    if not os.environ.get("PSRING_WHEEL"):
        pytest.skip("PSRING_WHEEL is not set: ./psring test --wheel makes a wheel and tests it")
    return os.environ["PSRING_WHEEL"]


def python_of(version):
    """An interpreter that can make environments: on PATH, else pyenv's. Skips, with what was tried."""
    tried = []
    for path in [shutil.which("python" + version), *glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python"))]:
        if path is None:
            continue
        # A name on PATH may be pyenv's, and no Python behind it; Debian's may lack ensurepip.
        ran = subprocess.run([path, "-c", "import ensurepip, venv"], capture_output=True, text=True)
        if ran.returncode == 0:
            return path
        tried.append(f"{path}: {ran.stderr.strip().splitlines()[-1:]}")
    pytest.skip(f"no Python {version} with venv and ensurepip: neither on PATH nor in ~/.pyenv/versions {tried or ''}")


def clean_environment(home):
    """Of a user who knows nothing of the clone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PSRING_", "PYTHON", "LD_"))}
    return {**kept, "HOME": str(home), "OMP_NUM_THREADS": "1"}


class Installed:
    """An environment with the wheel in it, and nothing else."""

    def __init__(self, python, folder, wheel):
        self.folder, self.environment = str(folder), clean_environment(folder)
        subprocess.run([python, "-m", "venv", self.folder], check=True, env=self.environment)
        self.run("pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel)
        self.packages = self.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()

    def run(self, program, *args):
        """What a program of the environment prints, started in its folder."""
        ran = subprocess.run(
            [os.path.join(self.folder, "bin", program), *args],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert ran.returncode == 0, f"{program} {args}: {ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def job(self, way, script, results):
        """What each of two workers has written about itself, by rank."""
        results.mkdir(parents=True)
        python = os.path.join(self.folder, "bin", "python")
        self.run("psring", "run", "-n", "2", *WAYS[way], "--", python, os.path.join(HERE, script), str(results))
        return [json.loads((results / str(rank)).read_text()) for rank in range(2)]


def test_size_and_tag(wheel, capsys):
    size = os.path.getsize(wheel)
    with capsys.disabled():
        print(f"\n{os.path.basename(wheel)}: {size / 1e6:.1f} MB")
    assert size < MOST_BYTES
    tag = re.fullmatch(r"psring-[\d.]+-py3-none-manylinux_2_(\d+)_(\w+)\.whl", os.path.basename(wheel))
    assert tag, "auditwheel has found the oldest glibc, and any Python 3 may load it"
    assert int(tag[1]) <= int(platform.libc_ver()[1].split(".")[1]) and tag[2] == platform.machine()
    with zipfile.ZipFile(wheel) as packed:
        metadata = packed.read(next(n for n in packed.namelist() if n.endswith(".dist-info/METADATA"))).decode()
    assert "\nRequires-Python: >=3.9\n" in metadata
    assert "Requires-Dist: torch>=1.13; extra" in metadata, "pip must not install torch by itself"


def test_brings_every_library_but_the_hosts(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
    checked, brought = 0, set()
    for path in glob.glob(str(tmp_path / "**"), recursive=True):
        if os.path.isdir(path) or open(path, "rb").read(4) != b"\x7fELF":
            continue
        ran = subprocess.run(["ldd", path], env=clean_environment(tmp_path), capture_output=True, text=True)
        if "statically linked" in ran.stdout:
            continue
        checked += 1
        assert ran.returncode == 0, ran.stdout + ran.stderr
        for name, where in re.findall(r"^\s*(\S+) => (.*?)(?: \(0x\w+\))?$", ran.stdout, re.M):
            if str(tmp_path) in where:
                brought.add(name.split("-")[0])
            else:
                assert OF_THE_HOST.match(name), f"{path} needs {name}, which is {where}"
    assert checked > 10
    assert {"libzmq", "libsodium", "libprotobuf", "libcivetweb"} <= brought


@pytest.fixture(scope="module", params=VERSIONS)
def bare(request, wheel, tmp_path_factory):
    return Installed(python_of(request.param), tmp_path_factory.mktemp("python") / request.param, wheel)


def test_bare_environment(bare, tmp_path):
    told = bare.run("python", "-c", "import sys, psring; print(psring.__file__, psring.__version__, 'numpy' in sys.modules)")
    version = subprocess.run([os.path.join(bare.folder, "bin", "pip"), "list", "--format=json"], env=bare.environment,
                             check=True, capture_output=True, text=True).stdout  # fmt: skip
    version = {package["name"]: package["version"] for package in json.loads(version)}["psring"]
    assert told.split() == [os.path.join(bare.packages, "psring", "__init__.py"), version, "False"]
    assert "Usage: psring COMMAND" in bare.run("psring", "--help")
    assert "Nothing that psring needs is missing" in bare.run("psring", "doctor")
    for way in WAYS:
        for rank, said in enumerate(bare.job(way, "plain_job.py", tmp_path / way)):
            assert said == {
                "rank": rank, "size": 2, "mode": way, "sum": [3.0] * 1000, "objects": [{"rank": 0}, {"rank": 1}],
                "root": "of rank 0", "library": os.path.join(bare.packages, "psring", "lib", "libpsring.so"),
            }  # fmt: skip


@pytest.mark.parametrize("command", ["worker", "launch", "compare", "bench"])
def test_without_the_trainer(wheel, tmp_path, command):
    """What only a clone has is refused by name."""
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
    program = tmp_path / "psring" / "bin" / "cli" / "psring"
    program.chmod(0o755)
    ran = subprocess.run(
        [program, command, *(["links"] if command == "bench" else [])],
        cwd=tmp_path, env=clean_environment(tmp_path), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 1 and "the wheel has no built-in trainer" in ran.stderr


def test_torch_trains_in_both_topologies(wheel, tmp_path):
    torch = importlib.util.find_spec("torch")
    if torch is None:
        pytest.skip(f"{sys.executable}, which runs the tests, has no torch")
    installed = Installed(sys.executable, tmp_path / "venv", wheel)
    with open(os.path.join(installed.packages, "torch-of-the-tests.pth"), "w") as file:
        file.write(os.path.dirname(os.path.dirname(torch.origin)) + "\n")
    results = {way: installed.job(way, "torch_job.py", tmp_path / way) for way in WAYS}
    for way, ranks in results.items():
        assert [said["mode"] for said in ranks] == [way] * 2
        assert all(said["package"].startswith(installed.packages) for said in ranks)
        assert all(said["after"] < said["before"] / 2 for said in ranks), ranks
    assert len({said["weights"] for ranks in results.values() for said in ranks}) == 1, results
