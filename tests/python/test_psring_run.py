"""What psring run says at the end of its processes."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

import ranks
from ranks import free_port

pytestmark = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: psring run wants the real one"
)

JOINS = "import psring; psring.init(); psring.shutdown()"
# Python takes its time to end worker 1, of whose failure worker 0 hears at once.
FAILS = """
import atexit, sys, time
atexit.register(time.sleep, 1.0)
import psring.torch as ps
import torch
ps.init()
net = torch.nn.Linear(2, 2)
opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
if ps.rank() == 0:
    atexit.unregister(time.sleep)
for step in range(1000):
    if ps.rank() == 1 and step == 3:
        sys.exit(7)
    opt.zero_grad()
    net(torch.ones(1, 2)).sum().backward()
    opt.step()
"""


def psring_run(tmp_path, text, *flags, python=sys.executable):
    script = tmp_path / "script.py"
    script.write_text(text)
    return subprocess.run(
        [ranks.PROGRAM, "run", "-n", "2", *flags, "--", python, str(script)],
        env={**os.environ, "PYTHONPATH": ranks.PYTHONPATH}, capture_output=True, text=True, timeout=180,
    )  # fmt: skip


@pytest.mark.parametrize("text, says", [("print('alone')", True), (JOINS, False)])
def test_it_says_where_no_process_has_joined(tmp_path, text, says):
    ran = psring_run(tmp_path, text)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ("does the program call psring's init()?" in ran.stderr) == says, ran.stderr
    assert ("needs --torchrun-variables" in ran.stderr) == says, ran.stderr


def test_where_torchruns_variables_are_set_it_does_not_ask_for_them(tmp_path):
    ran = psring_run(tmp_path, "print('alone')", "--torchrun-variables")
    assert ran.stderr.rstrip().endswith("does the program call psring's init()?"), ran.stderr


TORCHRUNS = """
import os
place = [os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")]
import torch, torch.distributed as dist, psring.torch
dist.init_process_group("psring")
x = torch.ones(1)
dist.all_reduce(x)
print(place, x.item())
"""


@pytest.mark.parametrize("flags, places", [([], [[None] * 4] * 2), (["--torchrun-variables"], [["0", "0", "2", "2"], ["1", "1", "2", "2"]])])
def test_scripts_of_torchrun_find_its_variables_where_they_are_wanted(tmp_path, flags, places):
    ran = psring_run(tmp_path, TORCHRUNS, *flags)
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == [f"[worker {rank}] {place} 2.0" for rank, place in enumerate(places)]


@pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="the system has no python3")
def test_the_systems_python_which_has_a_copy_of_environ_joins_the_job(tmp_path):
    ran = psring_run(tmp_path, "import psring; psring.init(); print('of', psring.size())", python="/usr/bin/python3")
    assert ran.returncode == 0 and ran.stdout.count("of 2") == 2, ran.stdout + ran.stderr


@pytest.mark.parametrize("flags", [("--mode=ring",), ("--mode=ps", "--sync=async")])
def test_the_culprit_is_named_with_its_exit_code(tmp_path, flags):
    ran = psring_run(tmp_path, FAILS, *flags)
    assert ran.returncode == 7, ran.stdout + ran.stderr
    assert "psring run: worker 1 (pid " in ran.stderr, ran.stderr


def test_a_script_that_asks_for_another_mode_is_told_who_chose_it(tmp_path):
    ran = psring_run(tmp_path, "import psring; psring.init(mode='ps')")
    assert ran.returncode == 2 and 'in mode "ring"' in ran.stderr and "psring run --mode=ps" in ran.stderr, ran.stderr


OPTIMIZER = """
import torch, psring.torch as ps
ps.init()
ps.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), {}="dense")
"""


@pytest.mark.parametrize("text, says", [
    ("import psring; psring.init(step_timeout=5)", "init() has no option 'step_timeout'"),
    ("import psring; psring.init(step_timeout_s=-1)", "step_timeout_s is -1; it takes a number"),
    (OPTIMIZER.format("updates"), "unexpected keyword argument 'updates'"),
    (OPTIMIZER.format("update"), "update='dense'"),
])  # fmt: skip
def test_wrong_arguments_which_no_restart_mends_are_told_once(tmp_path, text, says):
    ran = psring_run(tmp_path, text, "--max-restarts=3")
    assert ran.returncode == 2 and says in ran.stderr and "starts the job again" not in ran.stdout + ran.stderr, ran.stdout + ran.stderr


@pytest.mark.parametrize("text", [
    "import psring; psring.init(); raise ValueError('of the data')",
    "import psring; psring.init(interface='none7')",  # a network that is down may return
])  # fmt: skip
def test_other_errors_are_met_by_a_restart(tmp_path, text):
    ran = psring_run(tmp_path, text, "--max-restarts=1")
    assert ran.returncode == 1 and "(restart 1 of 1)" in ran.stdout + ran.stderr, ran.stdout + ran.stderr


def test_a_prompt_outlives_wrong_arguments():
    ran = subprocess.run(
        [sys.executable, "-c", "import code; code.interact()"], input="import psring\npsring.init(step_timeout=5)\nprint('lives', 'on')\n",
        env={**os.environ, "PYTHONPATH": ranks.PYTHONPATH}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "has no option" in ran.stderr and "lives on" in ran.stdout, ran.stdout + ran.stderr


def test_a_metrics_folder_that_cannot_be_written_is_named(tmp_path):
    ran = psring_run(tmp_path, JOINS, "--metrics-dir=/proc/none")
    assert ran.returncode != 0
    assert "cannot write /proc/none/worker-" in ran.stderr, ran.stderr


def test_it_says_at_once_who_was_killed(tmp_path):
    killed = "if ps.rank() == 1 and step == 3:\n        import os\n        os.kill(os.getpid(), 9)"
    ran = psring_run(tmp_path, FAILS.replace("if ps.rank() == 1 and step == 3:\n        sys.exit(7)", killed))
    assert ran.returncode == 137, ran.stdout + ran.stderr
    lines = (ran.stdout + ran.stderr).splitlines()
    [told] = [i for i, line in enumerate(lines) if line.startswith("[job] worker 1 (pid ") and "SIGKILL" in line]
    [missed] = [i for i, line in enumerate(lines) if line.startswith("[worker 0] psring: lost worker 1 ")]
    assert told < missed


def test_it_names_whom_it_has_killed_after_the_grace_period(tmp_path):
    stubborn = (
        "import os, psring, signal, sys, time\n"
        "psring.init()\n"
        "if psring.rank() == 1:\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "psring.barrier()\n"
        "if psring.rank() == 0:\n"
        "    os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(1000)\n"
    )
    ran = psring_run(tmp_path, stubborn, "--grace-period=1")
    assert ran.returncode == 128 + 15, ran.stdout + ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert "SIGTERM" in last and "--grace-period" in last and "worker 1 (pid " in last and "worker 0" not in last, last


def there_soon(paths):
    """Whether all of them are, within two minutes."""
    end = time.monotonic() + 120
    while not all(path.exists() for path in paths) and time.monotonic() < end:
        time.sleep(0.1)
    return all(path.exists() for path in paths)


def psring(*arguments, **more):
    before, preexec_fn = more.pop("before", []), more.pop("preexec_fn", None)
    return subprocess.Popen(
        [*before, ranks.PROGRAM, "run", *arguments], env={**os.environ, "PYTHONPATH": ranks.PYTHONPATH, **more},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=preexec_fn,
    )  # fmt: skip


def test_it_names_who_is_waited_for_where_others_have_ended(tmp_path):
    waits = 'for i in $(seq 600); do [ $PSRING_RANK = 0 ] || [ -e "$0" ] || sleep 0.1; done'
    run = psring("-n", "2", "--", "sh", "-c", waits, str(tmp_path / "told"))
    told = ""
    while not re.search(r"^\[job\] waits for worker 1 \(pid \d+\); the others have ended", told, re.M):
        told += run.stdout.readline() or pytest.fail(told)
    (tmp_path / "told").touch()
    assert run.wait(timeout=60) == 0


def test_ctrl_z_stops_the_whole_job_which_then_goes_on(tmp_path):
    meets = (
        "import os, psring, sys, time\npsring.init()\nprint('pid', os.getpid(), flush=True)\n"
        "while not psring.sum(int(os.path.exists(sys.argv[1]))): time.sleep(0.01)\npsring.shutdown()\n"
    )
    end = tmp_path / "end"
    # As a shell does: in a group without a parent in its session the kernel would ignore the signal.
    run = psring("-n", "2", "--mode=ring", "--", sys.executable, "-c", meets, str(end), preexec_fn=os.setpgrp)
    pids = [re.search(r"pid (\d+)", run.stdout.readline()).group(1) for _ in range(2)]
    run.send_signal(signal.SIGTSTP)
    try:
        deadline = time.monotonic() + 30
        while any(open(f"/proc/{pid}/stat").read().split()[2] != "T" for pid in [*pids, run.pid]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(7)  # as long as a lost process may be silent, and more
    finally:
        run.send_signal(signal.SIGCONT)
        end.touch()
    out = run.communicate(timeout=60)[0]
    assert run.returncode == 0, out


# Of a container: the kernel keeps signals that it does not catch from it.
@pytest.mark.skipif(os.geteuid() != 0, reason="a first process takes root")
def test_as_the_first_process_it_hands_on_sigterm_and_the_exit_code():
    pod = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    # Leaves an orphan, which the first process has to reap: whose code is not the script's.
    text = (
        "import os, sys, time\n"
        "reads, writes = os.pipe()\n"
        "if not (child := os.fork()):\n"
        "    if not (orphan := os.fork()): time.sleep(0.1), os._exit(3)\n"
        "    os.write(writes, str(orphan).encode()), os._exit(0)\n"
        "os.waitpid(child, 0); orphan = os.read(reads, 20).decode()\n"
        "for _ in range(600): os.path.exists('/proc/' + orphan) and time.sleep(0.1)\n"
        "assert not os.path.exists('/proc/' + orphan)\n"
        "print('up', flush=True)\n"
    )
    for rest, code in (("time.sleep(60)", 143), ("sys.exit(9)", 9)):
        run = psring("--", sys.executable, "-c", text + rest, before=["unshare", "-pf", "--mount-proc"], **pod)
        assert run.stdout.readline() == "up\n"
        if code == 143:
            [first] = subprocess.check_output(["pgrep", "-P", str(run.pid)], text=True).split()
            os.kill(int(first), signal.SIGTERM)
        out = run.communicate(timeout=30)[0]
        assert run.returncode == code, out


def test_the_users_number_of_threads_stays():
    show = ["sh", "-c", "echo threads $OMP_NUM_THREADS"]
    assert "threads 7" in psring("-n", "2", "--", *show, OMP_NUM_THREADS="7").communicate()[0]
    assert "threads 3" in psring("-n", "2", "--threads-per-worker=3", "--", *show, OMP_NUM_THREADS="7").communicate()[0]


def test_threads_that_wait_poll_for_a_short_time_unless_the_user_says_how_long():
    show = ["sh", "-c", "echo polls $GOMP_SPINCOUNT."]
    assert "polls 10000." in psring("-n", "1", "--", *show).communicate()[0]
    assert "polls 7." in psring("-n", "1", "--", *show, GOMP_SPINCOUNT="7").communicate()[0]
    assert "polls ." in psring("-n", "1", "--", *show, OMP_WAIT_POLICY="active").communicate()[0]


@pytest.mark.parametrize("flags, told", [([], "1.5"), (["--join-timeout=1"], "1")])
def test_the_user_says_how_long_workers_may_take_to_come(flags, told):
    script = "import os, psring\nif os.environ['PSRING_RANK'] == '0':\n    psring.init()"
    run = psring("-n", "2", *flags, "--", sys.executable, "-c", script, PSRING_JOIN_TIMEOUT_S="1.5")
    out = run.communicate(timeout=60)[0]
    assert f"the job is not complete after {told} s" in out, out


def test_a_script_may_load_for_longer_than_others_wait_for_it():
    script = "import time; time.sleep(2.5)\nimport psring\npsring.init()\nprint('size', psring.size())"
    run = psring("-n", "2", "--join-timeout=1.5", "--", sys.executable, "-c", script)
    out = run.communicate(timeout=60)[0]
    assert run.returncode == 0 and out.count("size 2") == 2, out


@pytest.mark.parametrize("variable", ["PSRING_JOIN_TIMEOUT_S", "PSRING_HEARTBEAT_TIMEOUT_S"])
def test_a_timeout_that_is_no_time_is_refused(variable):
    out = psring("-n", "1", "--", "true", **{variable: "soon"}).communicate()[0]
    assert f"{variable}=soon: not a number of seconds" in out


# Rank 1 is stopped for longer than the default allows; the coordinator lives in psring run.
@pytest.mark.parametrize("flags, variables", [(["--heartbeat-timeout=60"], {}), ([], {"PSRING_HEARTBEAT_TIMEOUT_S": "60"})])
def test_the_user_says_how_long_a_worker_may_be_silent(flags, variables):
    script = (
        "import os, signal, subprocess, psring\n"
        "psring.init()\n"
        "if psring.rank() == 1:\n"
        "    subprocess.Popen(['sh', '-c', f'sleep 8; kill -CONT {os.getpid()}'])\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "psring.barrier()\n"
        "print('all are here')"
    )
    run = psring("-n", "2", *flags, "--", sys.executable, "-c", script, **variables)
    out = run.communicate(timeout=120)[0]
    assert run.returncode == 0 and out.count("all are here") == 2, out


def test_a_job_that_needs_more_files_than_a_shell_allows_gets_them():
    join = "import psring; psring.init(); psring.barrier(); psring.shutdown()"
    few = ["prlimit", "--nofile=48:4096"]
    run = psring("-n", "8", "--mode=ring", "--", sys.executable, "-c", join, before=few)
    out = run.communicate(timeout=60)[0]
    assert run.returncode == 0, out


def test_the_user_chooses_the_address_of_a_worker():
    show = (
        "import json, psring; from psring import _lib; psring.init()\n"
        "print('address', json.loads(_lib.text(_lib.library().psring_job()))['address'])"
    )
    for flags, variables, address in (
        ([], {"PSRING_ADVERTISE": "127.0.0.2"}, "127.0.0.2"),
        (["--advertise=127.0.0.3"], {"PSRING_ADVERTISE": "127.0.0.2"}, "127.0.0.3"),
        (["--interface=lo"], {"PSRING_ADVERTISE": "127.0.0.2"}, "127.0.0.1"),
    ):
        run = psring("-n", "2", "--mode=ring", *flags, "--", sys.executable, "-c", show, **variables)
        out = run.communicate(timeout=60)[0]
        assert out.count(f"address {address}") == 2, out
    run = psring("-n", "1", "--interface=none7", "--", sys.executable, "-c", show)
    assert "none7" in run.communicate(timeout=60)[0] and run.returncode == 1
    run = psring("--interface=lo", "--advertise=127.0.0.1", "--", sys.executable, "-c", show)
    assert "give one" in run.communicate(timeout=60)[0] and run.returncode == 2


def test_the_user_chooses_the_ports_of_workers_and_servers():
    show = (
        "import os, psring, sys, torch, psring.torch as ps; ps.init(); net = torch.nn.Linear(3, 2)\n"
        "opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1), model=net)\n"
        "net(torch.ones(1, 3)).sum().backward(); opt.step()\n"
        "fds = [f'/proc/self/fd/{fd}' for fd in os.listdir('/proc/self/fd')]\n"
        "own = {os.readlink(fd) for fd in fds if os.path.lexists(fd)}\n"
        "lines = [line.split() for line in open('/proc/self/net/tcp')]\n"
        "print([int(l[1].split(':')[1], 16) for l in lines if l[3] == '0A' and f'socket:[{l[9]}]' in own])"
    )
    flags = ["--mode=ps", "--servers=1", "--ports=42100-42149"]
    run = psring("-n", "2", *flags, "--", sys.executable, "-c", show)
    out = run.communicate(timeout=180)[0]
    assert run.returncode == 0, out
    ports = [int(port) for line in re.findall(r"\[([\d, ]+)\]$", out, re.M) for port in line.split(",")]
    assert len(ports) >= 3 and all(42100 <= port <= 42149 for port in ports), out
    for wrong in ("--ports=9", "--ports=2-1"):
        run = psring("-n", "1", wrong, "--", sys.executable, "-c", show)
        assert "is no range of ports" in run.communicate(timeout=60)[0] and run.returncode == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="another host's /tmp takes root")
def test_the_state_of_servers_on_hosts_that_share_no_folder_comes_to_all(tmp_path):
    steps = (
        "import torch, psring.torch as ps; ps.init(); net = torch.nn.Linear(30, 200)\n"
        "opt = ps.DistributedOptimizer(torch.optim.Adam(net.parameters()), model=net, update='fused')\n"
        "net(torch.ones(1, 30)).sum().backward(); opt.step()\n"
        "for state in opt.state_dict()['state'].values(): print(state['exp_avg'].sub(0.1).abs().max() < 1e-6)"
    )
    job = {
        "PYTHONPATH": ranks.PYTHONPATH, "PSRING_SIZE": "2", "PSRING_MODE": "ps", "PSRING_SERVERS": "2", "PSRING_INSECURE": "1",
        "PSRING_COORDINATOR": f"127.0.0.1:{free_port()}", "TMPDIR": str(tmp_path),
    }  # fmt: skip
    elsewhere = ["unshare", "-mu", "sh", "-c", f'hostname other; mount -t tmpfs none {tmp_path}; exec "$@"', "sh"]
    workers = [
        subprocess.Popen(
            [*before, sys.executable, "-c", steps], env={**os.environ, **job, "PSRING_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank, before in enumerate([[], elsewhere])
    ]  # fmt: skip
    told = [worker.communicate(timeout=180)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], told
    assert all(out.count("tensor(True)\n") == 2 for out in told), told


# As Kubernetes does with restartPolicy OnFailure.
def test_a_process_that_is_restarted_before_its_loss_is_noticed_waits_for_the_next_job(tmp_path):
    meets = (
        "import psring, sys, time; psring.init(); print('joined', flush=True)\n"
        "for _ in range(int(sys.argv[1])): psring.barrier(), time.sleep(0.01)\n"
        "psring.shutdown()"
    )
    job = {"PYTHONPATH": ranks.PYTHONPATH, "PSRING_SIZE": "2", "PSRING_COORDINATOR": f"127.0.0.1:{free_port()}"}

    def start(rank, rounds):
        return subprocess.Popen(
            [sys.executable, "-c", meets, str(rounds)], env={**os.environ, **job, "PSRING_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    first = [start(rank, 100000) for rank in (0, 1)]
    assert [worker.stdout.readline() for worker in first] == ["joined\n"] * 2
    first[1].kill()
    time.sleep(2)
    again = start(1, 5)
    said = first[0].communicate(timeout=60)[0]
    assert first[0].returncode != 0 and "lost worker 1" in said, said
    again = [start(0, 5), again]
    told = [worker.communicate(timeout=60)[0] for worker in again]
    assert [worker.returncode for worker in again] == [0, 0], told


def test_a_script_saves_on_sigterm_though_nobody_reads_what_it_prints(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"""
import os, psring
psring.init()
preemption, place = psring.Preemption(), os.path.join({str(tmp_path)!r}, str(psring.rank()))
while not preemption.requested():
    with open(place + ".alive", "a") as file:
        file.write("x")
    print("x" * 50000, flush=True)
open(place + ".saved", "w").close()
psring.shutdown()
""")
    run = psring("-n", "2", "--mode=ring", "--", sys.executable, str(script))
    alive = [tmp_path / f"{rank}.alive" for rank in range(2)]

    def prints():
        return [path.stat().st_size if path.exists() else 0 for path in alive]

    before, now, end = None, prints(), time.monotonic() + 120
    while before != now or not all(now):
        assert time.monotonic() < end and run.poll() is None
        time.sleep(2)
        before, now = now, prints()
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=60) == 0
    assert all((tmp_path / f"{rank}.saved").exists() for rank in range(2))
    run.stdout.close()


# Trains with checkpoints of its own; while the job was not started again, rank 1 dies before the step that is given.
LOSES_A_WORKER = """
import os, signal, sys
import psring.torch as ps
import torch
ps.init()
folder, dies_at = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9), model=net)
begin, path = 0, os.path.join(folder, "saved.pt")
if os.path.exists(path):
    saved = torch.load(path)
    net.load_state_dict(saved["net"]), opt.load_state_dict(saved["opt"])
    begin = saved["step"]
for step in range(begin, 8):
    if ps.rank() == 1 and step == dies_at and os.environ["PSRING_RESTARTS"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    opt.zero_grad()
    net(torch.full((1, 4), float(step + ps.rank()))).sum().backward()
    opt.step()
    if ps.rank() == 0:
        torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "step": step + 1}, path + ".new")
        os.replace(path + ".new", path)
print("began at", begin, "ended with", net.weight.tolist())
"""


def test_a_job_on_two_hosts_that_loses_a_process_is_started_again_on_both(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(LOSES_A_WORKER)

    def train(name, dies_at):
        (tmp_path / name).mkdir()
        job = ["-n1", "--size=2", "--insecure", f"--coordinator=127.0.0.1:{free_port()}", "--max-restarts=1"]
        hosts = [
            psring(*job, f"--first-rank={rank}", "--", sys.executable, str(script), str(tmp_path / name), str(dies_at))
            for rank in (0, 1)
        ]
        told = [host.communicate(timeout=300)[0] for host in hosts]
        assert [host.returncode for host in hosts] == [0, 0], told
        return told

    whole, parts = train("whole", -1), train("parts", 5)
    assert all("starts the job again (restart 1 of 1)" in out for out in parts), parts
    assert not any("starts the job again" in out for out in whole), whole
    weights = [re.findall(r"began at (\d+) ended with (.*)", out) for out in (*whole, *parts)]
    assert [int(begin) for [(begin, _)] in weights] == [0, 0, 5, 5], weights
    assert len({text for [(_, text)] in weights}) == 1, weights


@pytest.mark.skipif(os.geteuid() != 0, reason="another /etc/hosts takes root")
@pytest.mark.parametrize("flags", [[], ["--advertise=127.0.0.1"]], ids=["", "advertise"])
def test_a_host_whose_names_are_away_for_a_while_waits_with_its_restart(tmp_path, flags):
    names, known = tmp_path / "hosts", "127.0.0.1 localhost first.test\n"
    names.write_text(known)
    script = tmp_path / "script.py"
    script.write_text(f"""
import os, signal, psring
psring.init()
psring.barrier()
if psring.rank() == 1 and os.environ["PSRING_RESTARTS"] == "0":
    open({str(names)!r}, "w").write("127.0.0.1 localhost\\n")
    os.kill(os.getpid(), signal.SIGKILL)
psring.barrier(name="end")
""")
    here = ["unshare", "-m", "sh", "-c", f'mount --bind {names} /etc/hosts && exec "$@"', "sh"]
    job = ["-n1", "--size=2", "--insecure", f"--coordinator=first.test:{free_port()}", "--max-restarts=1", *flags]
    hosts = [
        psring(*job, f"--first-rank={rank}", "--", sys.executable, str(script), before=here)
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        told = ""
        while "waits for the network" not in told:
            told += hosts[1].stdout.readline() or pytest.fail(told)
        names.write_text(known)
        told = [host.communicate(timeout=100)[0] for host in hosts]
        assert [host.returncode for host in hosts] == [0, 0], told
    finally:
        for host in hosts:
            host.kill()


def test_a_job_is_started_again_though_nobody_reads_what_it_prints(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"""
import os, signal, psring
psring.init()
again = os.environ["PSRING_RESTARTS"] == "1"
if again:
    open(os.path.join({str(tmp_path)!r}, f"{{psring.rank()}}.again"), "w").close()
elif psring.rank() == 1:
    print("x" * 1000000, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
psring.barrier()
""")
    run = psring("-n", "2", "--max-restarts=1", "--", sys.executable, str(script))
    again = there_soon([tmp_path / f"{rank}.again" for rank in (0, 1)])
    told = run.communicate(timeout=60)[0]
    assert again, "not before somebody read"
    assert run.returncode == 0 and "starts the job again" in told, told


def test_the_only_worker_on_the_coordinators_host_is_named_to_the_others(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import os, signal, time, psring
psring.init()
psring.barrier()
if psring.rank() == 0:
    os.kill(os.getpid(), signal.SIGKILL)
psring.barrier(name="end")
""")
    job = ["-n1", "--size=2", "--insecure", f"--coordinator=127.0.0.1:{free_port()}"]
    hosts = [psring(*job, f"--first-rank={rank}", "--", sys.executable, str(script)) for rank in (0, 1)]
    told = [host.communicate(timeout=60)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [137, 1], told
    assert re.search(r"psring: worker 0 \(host \S+, pid \d+\) failed: killed by SIGKILL", told[1]), told[1]


def test_a_quiet_job_ends_where_nobody_can_read_it_any_more(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"""
import os, time, psring
psring.init()
open(os.path.join({str(tmp_path)!r}, f"{{psring.rank()}}.here"), "w").close()
time.sleep(1000)
""")
    run = psring("-n", "2", "--", sys.executable, str(script))
    assert there_soon([tmp_path / f"{rank}.here" for rank in (0, 1)])
    run.stdout.close()  # as ssh does where its user presses Ctrl-C
    try:
        assert run.wait(timeout=40) == 128 + signal.SIGPIPE  # before a line "[job] ...", of every minute
    finally:
        run.kill()


def test_a_job_that_ends_after_its_reader_has_seen_enough_ends_well(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import psring, time
psring.init()
if psring.rank() == 0:
    print("done", flush=True)
time.sleep(1)
psring.barrier()
""")
    run = psring("-n", "2", "--", sys.executable, str(script))
    for line in run.stdout:
        if "done" in line:
            break
    run.stdout.close()
    assert run.wait(timeout=60) == 0


def test_it_ends_also_where_its_starter_ignores_the_ends_of_processes():
    command = [ranks.PROGRAM, "run", "-n", "1", "--", sys.executable, "-c", "raise SystemExit(3)"]
    with subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)) as run:
        try:
            assert run.wait(timeout=60) == 3
        finally:
            run.kill()


# SIGSTOP, which no process can hand on to others.
def test_it_takes_its_own_workers_for_no_strangers_after_a_stop(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import os, psring, time
psring.init()
print("pid", os.getpid(), flush=True)
while True:
    psring.barrier()
    time.sleep(0.1)
""")
    run = psring("-n", "2", "--", sys.executable, str(script))
    try:
        workers = [int(run.stdout.readline().split()[-1]) for _ in range(2)]
        run.send_signal(signal.SIGSTOP)
        end = time.monotonic() + 60
        while time.monotonic() < end and not all(map(has_ended, workers)):
            time.sleep(0.1)
        run.send_signal(signal.SIGCONT)
        told = run.communicate(timeout=60)[0]
    finally:
        run.kill()
    assert "lost the coordinator" in told and "refuses a process" not in told, told


def has_ended(pid):
    """Also where nobody has waited for it yet."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
