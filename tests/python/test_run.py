"""psring.run(): a function, as of a notebook, runs as the workers of a job on this host."""

import atexit
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import psring
from psring import _engine
from ranks import PYTHONPATH

pytestmark = pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="needs the real library: set PSRING_LIBRARY")


def importing_this():
    """The environment of a process of the tests' that imports psring and this module."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), PYTHONPATH])}


def total(factor, add=0.0):
    psring.init()
    return factor * psring.sum(psring.rank() + 1) + add, psring.mode(), os.environ.get("KIND")


def several_jobs():
    sums = []
    for _ in range(2):
        psring.init()
        sums.append(psring.sum(1))
        psring.shutdown()
    return sums


def fail(how):
    psring.init()
    psring.barrier()
    if psring.rank() == 1:
        how()
    psring.barrier()


def raise_error():
    raise LookupError("no such digit \udcff")


def send_an_unnamed_signal():
    os.kill(os.getpid(), signal.SIGRTMIN + 5)


def raise_error_and_crash():
    atexit.register(os.abort)
    raise LookupError("first")


class Speechless(Exception):
    def __str__(self):
        return self.never_set


def raise_speechless():
    raise Speechless


class Unreadable:
    """Only a worker makes one of it: its pickle calls what raises elsewhere."""

    def __reduce__(self):
        return int, ("of a worker",)


def fail_in_other_words(folder):
    psring.init()
    psring.barrier()
    open(os.path.join(folder, str(psring.rank())), "w").close()
    if psring.rank() == 1:
        while not os.path.exists(os.path.join(folder, "0")):  # else it may hear of the failure in the barrier above
            time.sleep(0.01)
        raise ValueError("bad data")
    try:
        psring.barrier()
    except psring.PsringError as error:
        raise RuntimeError("training failed") from error


def run_in_run():
    psring.init()
    return psring.run(total, (1.0,), num_proc=1, mode="ring")[0][0], psring.sum(5)


def return_a_lambda():
    psring.init()
    return lambda: 1


def test_results_come_by_rank_in_each_topology():
    assert psring.run(total, (2.0,), {"add": 1.0}, num_proc=2, env={"KIND": "x"}) == [(7.0, "ring", "x")] * 2
    assert psring.run(total, (1.0,), num_proc=2, mode="ps", servers=2) == [(3.0, "ps", None)] * 2
    assert psring.run(several_jobs, num_proc=2) == [[2, 2]] * 2
    assert not psring.is_initialized()


def test_a_process_with_a_job_of_its_own_runs_others():
    code = "import psring, test_run; psring.init(); print(psring.run(test_run.total, (1.0,), num_proc=2)[1][0], psring.sum(5))"
    ran = subprocess.run([sys.executable, "-c", code], env=importing_this(), capture_output=True, text=True)
    assert ran.stdout == "3.0 5\n", ran.stderr


def test_a_worker_of_a_job_runs_others():
    assert psring.run(run_in_run, num_proc=1) == [(1.0, 5)]


def test_a_process_that_psring_run_has_started_runs_workers():
    program = os.environ.get("PSRING_PROGRAM")
    if not program:
        pytest.skip("needs the program: set PSRING_PROGRAM")
    code = "import psring, test_run; print(psring.run(test_run.total, (1.0,), num_proc=2, mode='ps')[1])"
    ran = subprocess.run(
        [program, "run", "-n", "1", "--", sys.executable, "-c", code], env=importing_this(), capture_output=True, text=True, timeout=180
    )
    assert "(3.0, 'ps', None)" in ran.stdout, ran.stdout + ran.stderr


def test_a_path_that_is_no_text_is_passed_over(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, pathlib.Path("lib")])
    assert psring.run(os.getenv, ("PSRING_RANK",), num_proc=1) == ["0"]


def arguments():
    return sys.argv[1:]


def test_a_function_sees_no_arguments_of_psrings():
    assert psring.run(arguments, num_proc=1) == [[]]


def test_modules_of_the_working_folder_hide_no_others(tmp_path, monkeypatch):
    (tmp_path / "pickle.py").write_text("raise ValueError('not this one')")
    monkeypatch.chdir(tmp_path)
    assert psring.run(os.getenv, ("PSRING_RANK",), num_proc=1) == ["0"]


def first_folder():
    return sys.path[0]


def test_workers_import_from_a_folder_of_env_first(tmp_path):
    assert psring.run(first_folder, num_proc=1, env={"PYTHONPATH": str(tmp_path)}) == [str(tmp_path)]


def test_workers_have_no_place_of_the_process_that_starts_them(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("MASTER_PORT", "1")
    assert psring.run(os.getenv, ("RANK",), num_proc=1) == psring.run(os.getenv, ("MASTER_PORT",), num_proc=1) == [None]
    assert psring.run(os.getenv, ("RANK",), num_proc=1, env={"RANK": "3"}) == ["3"]


def test_each_worker_computes_with_its_share_of_the_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = len(os.sched_getaffinity(0))
    assert psring.run(os.getenv, ("OMP_NUM_THREADS",), num_proc=1) == [str(cores)]
    assert psring.run(os.getenv, ("OMP_NUM_THREADS",), num_proc=2) == [str(max(1, cores // 2))] * 2


@pytest.mark.parametrize("how, says", [
    (raise_error, r"^worker 1 of 2 failed: LookupError: no such digit \\udcff$"),
    (raise_speechless, r"^worker 1 of 2 failed: Speechless: \(its __str__\(\) raised AttributeError\)$"),
    (sys.exit, r"^worker 1 of 2 failed: SystemExit: $"),
    (os.abort, r"^worker 1 of 2 was ended by SIGABRT$"),
    (send_an_unnamed_signal, rf"^worker 1 of 2 was ended by signal {signal.SIGRTMIN + 5}$"),
])  # fmt: skip
def test_the_worker_that_failed_is_named(how, says):
    with pytest.raises(psring.PsringError, match=says):
        psring.run(fail, (how,), num_proc=2)


def test_the_worker_that_failed_is_named_where_another_has_other_words_for_it(tmp_path):
    with pytest.raises(psring.PsringError, match="^worker 1 of 2 failed: ValueError: bad data$"):
        psring.run(fail_in_other_words, (str(tmp_path),), num_proc=2)


def test_an_error_is_told_also_where_the_worker_crashes_after_it():
    with pytest.raises(psring.PsringError, match="^worker 0 of 1 failed: LookupError: first$"):
        psring.run(raise_error_and_crash, num_proc=1)


def test_a_worker_that_ends_without_a_result_is_named():
    with pytest.raises(psring.PsringError, match="^worker 0 of 1 ended with exit code 0 before its function returned$"):
        psring.run(os._exit, (0,), num_proc=1)


def test_the_error_is_told_also_where_exit_codes_are_lost():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(psring.PsringError, match="^worker 1 of 2 failed: LookupError: no such"):
            psring.run(fail, (raise_error,), num_proc=2)
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def test_a_result_that_cannot_travel_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(psring.PsringError, match=r"worker [01] of 2 failed: .*(lambda|local)"):
        psring.run(return_a_lambda, num_proc=2)


def test_a_result_that_only_its_worker_can_make_is_told_with_the_remedy():
    says = r"^worker 0 of 2 returned a test_run.Unreadable, which this process cannot unpickle: ValueError: .*of a worker.*Return what"
    with pytest.raises(psring.PsringError, match=says):
        psring.run(Unreadable, num_proc=2)


def test_a_function_that_cannot_travel_is_told_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ImportError, match="pip install cloudpickle, or move it into a module"):
        psring.run(lambda: 1, num_proc=2)


def test_a_function_of_the_script_travels_with_what_it_refers_to():
    pytest.importorskip("cloudpickle")
    code = "import psring; n = 2\ndef f():\n    psring.init()\n    return psring.sum(n)\nprint(psring.run(f, num_proc=2))"
    ran = subprocess.run([sys.executable, "-c", code], env=importing_this(), capture_output=True, text=True)
    assert ran.stdout == "[4, 4]\n", ran.stderr


@pytest.mark.parametrize("wrong, says", [
    ({"num_proc": 0}, "num_proc=0: it is a whole number from 1"),
    ({"num_proc": "two"}, "num_proc='two'"),
    ({"num_proc": True}, "num_proc=True"),
    ({"num_proc": float("inf")}, "num_proc=inf"),
    ({"num_proc": 1, "servers": 1}, 'only mode="ps" has servers'),
    ({"num_proc": 1, "mode": "star"}, "mode='star'"),
])  # fmt: skip
def test_wrong_arguments_are_named(wrong, says):
    with pytest.raises(ValueError, match=says):
        psring.run(several_jobs, **wrong)


@pytest.mark.parametrize("wrong, says", [
    ({"args": 0.1}, "args=0.1: it is a tuple .* args=.x,. for one"),
    ({"args": "data"}, "args='data': it is a tuple"),
    ({"kwargs": ["data"]}, "kwargs=.'data'.: it is a dict"),
    ({"env": {"OMP_NUM_THREADS": 1}}, "env={'OMP_NUM_THREADS': 1}: .* write 'OMP_NUM_THREADS': '1'"),
])  # fmt: skip
def test_arguments_that_workers_could_not_take_are_named(wrong, says):
    with pytest.raises(TypeError, match=says):
        psring.run(several_jobs, num_proc=1, **wrong)


def test_an_engine_hides_from_its_workers_what_a_launcher_has_told_the_driver(monkeypatch):
    told = [f"PSRING_{name}" for name in ("COORDINATOR", "COORDINATOR_HOSTED", "JOINED", "KEY_FD", "LOCAL_SIZE", "RESTARTS")]
    for name in told:
        monkeypatch.setenv(name, "1")
    assert _engine.call(lambda: set(told) & set(os.environ), (), {}, {}, None) == set()
    assert set(told) <= set(os.environ)


def wait(path):
    psring.init()
    with open(f"{path}-{psring.rank()}", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_and_files_end_with_the_process_that_has_started_them(tmp_path, how):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**importing_this(), "TMPDIR": str(temporary)}
    code = f"import psring, test_run; psring.run(test_run.wait, ({str(tmp_path / 'pid')!r},), num_proc=2)"
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as starter:
        end = time.monotonic() + 60
        while time.monotonic() < end and any(not (tmp_path / f"pid-{rank}").exists() for rank in range(2)):
            time.sleep(0.05)
        starter.send_signal(how)
    pids = [int((tmp_path / f"pid-{rank}").read_text()) for rank in range(2)]
    while time.monotonic() < end and any(os.path.exists(f"/proc/{pid}") for pid in pids):
        time.sleep(0.05)
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert not os.listdir(temporary)
