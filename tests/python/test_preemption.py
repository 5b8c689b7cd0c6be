"""SIGTERM to one worker, which all learn of at the same step."""

import os
import signal
import subprocess
import sys
import time
import traceback

import pytest

import psring
import ranks


def one_worker_gets_sigterm():
    psring.init()
    preemption = psring.Preemption(every=2)
    answers = []
    for step in range(6):
        if step == 2 and psring.rank() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        answers.append(preemption.requested())
    preemption.close()
    return answers, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_all_workers_learn_of_sigterm_at_the_same_step(mode):
    results = ranks.run(one_worker_gets_sigterm, mode=mode)
    assert results == [([False, False, False, True, False, True], True)] * 2


def a_child_of_fork_gets_sigterm():
    psring.init()
    preemption = psring.Preemption()
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tell, b"!")
        time.sleep(30)
        os._exit(0)
    os.read(ready, 1)  # Python forgets signals that come to a child within fork()
    os.kill(child, signal.SIGTERM)
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -1, preemption.requested()


def test_sigterm_ends_a_child_as_ever():
    assert ranks.run(a_child_of_fork_gets_sigterm, size=1) == [(signal.SIGTERM, False)]


class Enough(Exception):
    pass


def a_handler_leaves_a_job_that_forms():
    def leave(number, frame):
        if "init" not in [caller.name for caller in traceback.extract_stack(frame)]:
            return signal.setitimer(signal.ITIMER_REAL, 0.5)  # it has yet to begin
        psring.shutdown()
        raise Enough

    signal.signal(signal.SIGALRM, leave)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    with pytest.raises(Enough):
        psring.init(rank=0, size=2, coordinator=f"127.0.0.1:{ranks.free_port()}", join_timeout_s=20)
    return psring.is_initialized()


def test_a_handler_may_call_shutdown_while_init_waits():
    assert ranks.run(a_handler_leaves_a_job_that_forms, size=1) == [False]


def test_every_counts_from_one():
    with pytest.raises(ValueError, match="every=0"):
        psring.Preemption(every=0)


# With a process of its own, as those that load data, which SIGTERM would end.
SCRIPT = """
import os, signal, sys, time, psring
helper = os.fork()
if helper == 0:
    time.sleep(600)
psring.init()
preemption = psring.Preemption()
print("ready", flush=True)
while not preemption.requested():
    print("steps", flush=True)
    time.sleep(0.02)
print("saves", flush=True)
time.sleep(0.5)
assert os.waitpid(helper, os.WNOHANG) == (0, 0)
os.kill(helper, signal.SIGKILL)
open(f"{sys.argv[1]}/{psring.rank()}", "w").close()
psring.shutdown()
"""


needs_the_library = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: psring run wants the real one"
)


def script_in(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return [sys.executable, "-u", str(script), str(tmp_path)]


def start(tmp_path):
    run = subprocess.Popen(
        [ranks.PROGRAM, "run", "-n", "2", "--", *script_in(tmp_path)],
        env={**os.environ, "PYTHONPATH": ranks.PYTHONPATH}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # Tests may run under nohup, which psring run would heed.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )  # fmt: skip
    ready = 0
    while ready < 2:
        ready += "ready" in run.stdout.readline()
    return run


def saved(tmp_path):
    return (tmp_path / "0").exists() and (tmp_path / "1").exists()


@needs_the_library
def test_psring_run_passes_sigterm_on_and_lets_workers_save(tmp_path):
    run = start(tmp_path)
    run.send_signal(signal.SIGTERM)
    said, errors = run.communicate(timeout=60)
    assert run.returncode == 0, said + errors
    assert "all processes have ended well after SIGTERM" in errors
    assert saved(tmp_path)


@needs_the_library
def test_a_second_sigterm_leaves_workers_the_time_to_save(tmp_path):
    """Slurm sends two at a job's limit of time, a terminal that closes two SIGHUP."""
    run = start(tmp_path)
    run.send_signal(signal.SIGTERM)
    said = ""
    while "saves" not in said:
        said = run.stdout.readline()
    run.send_signal(signal.SIGTERM)
    run.send_signal(signal.SIGHUP)
    said, errors = run.communicate(timeout=60)
    assert run.returncode == 0, said + errors
    assert saved(tmp_path)


@needs_the_library
def test_a_server_hands_sigterm_on_to_the_workers(tmp_path):
    """As where a node is drained that only a server is on."""
    coordinator = f"127.0.0.1:{ranks.free_port()}"
    server = subprocess.Popen(
        [ranks.SERVER, f"--coordinator={coordinator}", "--host-coordinator", "--servers=1", "--workers=2"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    job = {
        "PSRING_MODE": "ps",
        "PSRING_COORDINATOR": coordinator,
        "PSRING_COORDINATOR_HOSTED": "1",
        "PSRING_OWN_SERVERS": "0",
        "PSRING_SIZE": "2",
        "PYTHONPATH": ranks.PYTHONPATH,
    }
    workers = [
        subprocess.Popen(
            script_in(tmp_path), env={**os.environ, **job, "PSRING_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for line in workers[0].stdout:
        if "steps" in line:
            break
    server.send_signal(signal.SIGTERM)
    for worker in workers:
        said, _ = worker.communicate(timeout=60)
        assert worker.returncode == 0, said
    served, _ = server.communicate(timeout=60)
    assert server.returncode == 0, served
    assert "ps 0: SIGTERM: asks the workers to end early" in served
    assert saved(tmp_path)


@needs_the_library
@pytest.mark.parametrize("sent, code", [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (None, 141)])
def test_workers_save_where_nobody_reads_their_output_any_more(tmp_path, sent, code):
    """As tee, which the same signal has ended, or head, which has seen enough."""
    run = start(tmp_path)
    if sent is not None:
        run.send_signal(sent)
    run.stdout.close()
    errors = run.stderr.read()
    assert run.wait(timeout=60) == code, errors
    assert saved(tmp_path)
