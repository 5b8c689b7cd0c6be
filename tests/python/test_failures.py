"""How a job ends: well, by an exception, by Ctrl-C, by exit codes, by forks, by bad input."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

import psring
from ranks import PYTHONPATH, free_port, run_script, start

# The stand-in says other things, or waits.
needs_library = pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set")


def write(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(text)
    return str(path)


def test_others_end_with_the_culprits_exception_as_their_last_line(tmp_path):
    script = write(tmp_path, """
import atexit, time, torch, psring.torch as ps
atexit.register(lambda: print(time.monotonic()))
ps.init()
net = torch.nn.Linear(2, 2)
opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
for step in range(1000):
    if ps.rank() == 1 and step == 3:
        print(time.monotonic())
        raise ValueError("no such file: x")
    net(torch.ones(1, 2)).sum().backward()
    opt.step()
""")
    ranks = run_script(script, 3)
    failed = float(ranks[1][1].split()[0])
    assert all(float(out.split()[-1]) - failed < 20 for _, out, _ in ranks)  # of the 60 s that a step may take
    for rank, (code, out, err) in enumerate(ranks):
        assert code == 1, (rank, code, err)
        if rank == 1:
            assert "Traceback" in err and err.count("no such file") == 2  # its line, and the exception
        else:
            last = err.strip().splitlines()[-1]
            assert last.startswith("psring: worker 1 (host ") and last.endswith("ValueError: no such file: x")
            assert "Traceback" not in err and err.count("no such file") == 1


# What a file's name with a byte that is not UTF-8 looks like in Python.
ODD = r"a\udc80\0b"


def test_others_learn_of_a_failure_that_names_an_odd_file(tmp_path):
    script = write(tmp_path, f"""
import psring
psring.init()
if psring.rank() == 1:
    raise FileNotFoundError("{ODD}")
psring.barrier()
""")
    ranks = run_script(script, 2)
    assert [code for code, _, _ in ranks] == [1, 1]
    assert ranks[0][2].strip().endswith(r"FileNotFoundError: a\udc80\x00b"), ranks[0][2]
    assert "Error in sys.excepthook" not in ranks[1][2]


def test_others_learn_what_failed_in_a_callback_without_its_frames():
    from psring._failure import described

    frames = 'INTERNAL: CpuCallback error: Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
    assert described(RuntimeError(frames + "ValueError: bad\ndata")) == "RuntimeError: INTERNAL: CpuCallback error: ValueError: bad\ndata"
    assert described(RuntimeError(frames)) == "RuntimeError: " + frames
    assert described(ValueError("two\n  lines")) == "ValueError: two\n  lines"


def test_others_learn_the_type_of_a_failure_that_cannot_say_what_it_is(tmp_path):
    script = write(tmp_path, """
import psring
class Speechless(Exception):
    def __str__(self):
        return self.never_set
psring.init()
if psring.rank() == 1:
    raise Speechless
psring.barrier()
""")
    ranks = run_script(script, 2)
    assert [code for code, _, _ in ranks] == [1, 1]
    assert ranks[0][2].strip().endswith("Speechless: (its __str__() raised AttributeError)"), ranks[0][2]
    assert "Error in sys.excepthook" not in ranks[1][2]


def test_names_and_metrics_may_have_odd_characters(tmp_path):
    script = write(tmp_path, f"""
import torch, psring.torch as ps
ps.init()
ps.log(loss=1.0, note="{ODD}")
ps.barrier(name="{ODD}")
print(ps.allreduce(torch.ones(1), name="{ODD}").item(), ps.allgather_object("{ODD}", name="{ODD}") == ["{ODD}"] * 2)
named = [("{ODD}.weight", torch.nn.Parameter(torch.ones(2)))]
ps.broadcast_parameters(named)
opt = ps.DistributedOptimizer(torch.optim.SGD([named[0][1]], lr=0.5, momentum=0.9), named_parameters=named, update="fused")
named[0][1].sum().backward()
opt.step()
print(named[0][1].tolist(), len(opt.state_dict()["state"]))
""")
    ranks = run_script(script, 2, env={"PSRING_METRICS_DIR": str(tmp_path)})
    assert [(code, out.splitlines()) for code, out, _ in ranks] == [(0, ["1.0 True", "[0.5, 0.5] 1"])] * 2, ranks
    lines = [json.loads(line) for line in (tmp_path / "worker-0.jsonl").read_text().splitlines()]
    assert [line["note"] for line in lines if "note" in line] == [r"a\udc80" + "\0b"]


def test_a_folder_whose_name_is_not_utf8_is_named(tmp_path):
    script = write(tmp_path, "import psring\npsring.init(metrics_dir='/tmp/a\\udc80')\n")
    [(code, _, err)] = run_script(script, 1)
    assert code == 2 and r"metrics_dir='/tmp/a\udc80' is not UTF-8: choose another" in err.splitlines()[-1], err


@pytest.mark.parametrize("line, code", [
    ("sys.exit(3)", 3), ("sys.exit('bad data')", 1), ("exit(3)", 3), ("quit(3)", 3), ("raise SystemExit(4)", 1)
])  # fmt: skip
def test_an_exit_code_is_a_failure(tmp_path, line, code):
    script = write(tmp_path, f"""
import sys, time, psring
psring.init()
if psring.rank() == 1:
    {line}
psring.barrier()
""")
    ranks = run_script(script, 2)
    assert ranks[1][0] == code
    assert ranks[0][0] == 1
    last = ranks[0][2].strip().splitlines()[-1]
    assert "worker 1 (host " in last and ("exit code 3" in last or code != 3), last


def test_exit_is_as_before_once_the_job_is_over(tmp_path):
    script = write(tmp_path, """
import builtins, sys, psring
before = sys.exit, builtins.exit, builtins.quit
psring.init()
assert builtins.exit is not before[1] and repr(exit) == repr(before[1])
import pickle
assert pickle.loads(pickle.dumps(sys.exit)) is sys.exit and pickle.loads(pickle.dumps(quit)) is quit
psring.shutdown()
assert (sys.exit, builtins.exit, builtins.quit) == before
quit(5)
""")
    [(code, _, err)] = run_script(script, 1)
    assert code == 5, err


ADD = 'opt.add_param_group({"params": extra.parameters()})'


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in would wait")
@pytest.mark.parametrize("mode, update, call, remedy", [
    ("ring", "local", ADD, "all ranks add the same group before the same step"),
    ("ps", "local", ADD, "all ranks add the same group before the same step"),
    ("ps", "local", "ps.sum(1)", "all ranks must call the same operations"),
    ("ps", "fused", "opt.state_dict()", "barrier 'state of model.noname.0'"),
    ("ring", "fused", "opt.load_state_dict(opt_state)", "state = broadcast_object(state) gives it to all"),
    ("ring", "local", "opt.close()", "All ranks together close an optimizer"),
    ("ring", "local", 'ps.barrier(name="end of epoch 2")', "all ranks must call the same operations"),
])
def test_what_one_rank_calls_where_another_makes_a_step_is_named(tmp_path, mode, update, call, remedy):
    script = write(tmp_path, f"""
import time, torch, psring.torch as ps
ps.init()
net, extra = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
opt_state = opt.state_dict()
opt = ps.DistributedOptimizer(opt, model=net, update="{update}")
for step in range(4):
    begin = time.monotonic()
    try:
        if step == 2 and ps.rank() == 0:
            {call}
        opt.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        opt.step()
    finally:
        print(time.monotonic() - begin, flush=True)
""")
    ranks = run_script(script, 2, mode=mode)
    assert all(code != 0 for code, _, _ in ranks)
    said = ranks[0][2]
    assert "rank 1 waits for step 2 of 'model.noname.0'" in said and remedy in said, said
    assert "rank 0 calls add_param_group()" in said or "add_param" not in call, said
    assert float(ranks[0][1].split()[-1]) < 20


@needs_library
def test_a_rank_that_alone_asks_for_the_state_is_told_so_where_others_may_be_ahead(tmp_path):
    script = write(tmp_path, """
import time, torch, psring.torch as ps
ps.init(sync="ssp:2")
net = torch.nn.Linear(4, 4)
opt = ps.DistributedOptimizer(torch.optim.Adam(net.parameters(), lr=0.01), model=net)
begin = time.monotonic()
try:
    for step in range(20):
        if step == 4 and ps.rank() == 0:
            opt.state_dict()
        opt.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        opt.step()
finally:
    print(time.monotonic() - begin, flush=True)
""")
    ranks = run_script(script, 2, mode="ps")
    assert all(code != 0 for code, _, _ in ranks)
    said = ranks[0][2]
    assert "rank 0 waits for barrier 'state of model.noname.0', rank 1 waits for step 4 of 'model.noname.0'" in said, said
    assert "all call optimizer.state_dict()" in said, said
    assert float(ranks[0][1].split()[-1]) < 20


@needs_library
@pytest.mark.parametrize("end, code", [("sys.exit(3)", 3), ("raise ValueError('the real error')", 1)])
def test_hooks_that_others_have_chained_are_not_chained_again(tmp_path, end, code):
    """As a library does that wants to know how the process ends."""
    script = write(tmp_path, f"""
import psring, sys
psring.init()
hook, leave = sys.excepthook, sys.exit
sys.excepthook, sys.exit = lambda *error: hook(*error), lambda code=None: leave(code)
psring.shutdown()
psring.init()
{end}
""")
    for exit_code, _, err in run_script(script, 1):
        assert exit_code == code, err
        assert "RecursionError" not in err
        assert err.count("ValueError: the real error") == (code == 1), err


def test_a_script_needs_no_shutdown(tmp_path):
    script = write(tmp_path, """
import psring, sys
psring.init()
print(psring.sum(1))
sys.exit(0)
""")
    assert [(code, out.strip(), err) for code, out, err in run_script(script, 2)] == [(0, "2", "")] * 2


def test_ctrl_c_ends_a_waiting_rank_and_the_others(tmp_path):
    script = write(tmp_path, """
import os, psring, sys, time
psring.init()
print("here", flush=True)
if psring.rank() == 0:
    psring.barrier()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
psring.barrier(name="other")
""")
    processes = start(script, 2, args=[str(tmp_path / "interrupted")])
    for process in processes:
        assert process.stdout.readline() == "here\n"
    time.sleep(0.3)
    processes[0].send_signal(signal.SIGINT)
    ends = [processes[0].communicate(timeout=60)]
    (tmp_path / "interrupted").touch()
    ends.append(processes[1].communicate(timeout=60))
    assert "KeyboardInterrupt" in ends[0][1]
    assert "KeyboardInterrupt" in ends[1][1].strip().splitlines()[-1], ends[1]
    assert processes[0].returncode != 0 and processes[1].returncode == 1


def test_a_handler_of_sigint_may_go_before_psrings_and_chain_to_it(tmp_path):
    script = write(tmp_path, """
import faulthandler, os, signal, torch, psring.torch as ps
ps.init()
net = torch.nn.Linear(2, 2)
opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
def step():
    net(torch.ones(1, 2)).sum().backward()
    opt.step()
step()
faulthandler.register(signal.SIGINT, chain=True, all_threads=False)
step()
try:
    os.kill(os.getpid(), signal.SIGINT)
    step()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
""")
    for code, out, err in run_script(script, 2):
        assert (code, out) == (0, "interrupted\n"), err
        assert err.count("Stack (most recent call first)") == 1, err


def test_forked_children_are_not_part_of_the_job(tmp_path):
    script = write(tmp_path, """
import os, sys, torch, psring.torch as ps
ps.init()
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return i
loader = torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=2, multiprocessing_context="fork")
print(ps.sum(int(sum(b.sum() for b in loader))), flush=True)
child = os.fork()
if child == 0:
    try:
        ps.barrier()
    except ps.PsringError as error:
        print("child:", error, flush=True)
    sys.exit(7)
os.waitpid(child, 0)
ps.barrier()
print(ps.rank(), "done")
""")
    for rank, (code, out, err) in enumerate(run_script(script, 2)):
        assert code == 0, err
        lines = out.splitlines()
        assert lines[0] == "56" and "fork of a worker" in lines[1] and lines[2] == f"{rank} done"


@pytest.mark.parametrize("abi, words", [(99, "has interface 99"), (psring._lib.ABI, "has no psring_version")])
def test_a_library_of_another_version_is_refused(monkeypatch, abi, words):
    class Function:
        def __call__(self):
            return abi

    older = type("Older", (), {"psring_abi": Function()})()
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: older)
    with pytest.raises(ImportError, match=f"{words}.* same version of psring"):
        psring._lib._load()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no cc, which makes the library of another version")
def test_a_script_with_a_library_of_another_version_says_so(tmp_path):
    library = tmp_path / "libpsring.so"
    compiler = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", str(library)]
    subprocess.run(compiler, input="int psring_abi(void) { return 99; }", text=True, check=True)
    script = write(tmp_path, "import psring\npsring.init()\n")
    env = {**os.environ, "PYTHONPATH": PYTHONPATH, "PSRING_LIBRARY": str(library)}
    ran = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    last = ran.stderr.strip().splitlines()[-1]
    assert f"{library} has interface 99, this Python package needs {psring._lib.ABI}" in last, last
    assert "take both from the same version of psring" in last


# ---- Bad input ---------------------------------------------------------------


def processes_of(folder):
    """Pids of those that work in it, or have it in the environment with which they were started."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if os.readlink(f"/proc/{pid}/cwd") == folder or folder.encode() in file.read():
                    found.append(int(pid))
        except OSError:
            pass  # it has ended, or is another user's
    return found


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if "psring" in name and "fuzz" not in name}


def fails(script, size=2, **more):
    """What each rank says last, and that nothing is left of a job which fails on all ranks."""
    folder, before = os.path.dirname(script), shared_memory()
    env = {**more.pop("env", {}), "PSRING_TEST": folder}
    ranks = run_script(script, size, env=env, folder=folder, timeout=120, **more)
    assert all(code not in (0, None) and code > 0 for code, _, _ in ranks), ranks
    deadline = time.monotonic() + 30
    while processes_of(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(folder) == [] and shared_memory() <= before
    return [err.strip().splitlines()[-1] for _, _, err in ranks]


@needs_library
@pytest.mark.parametrize("dead, words", [
    (1, ["missing 1 of 2 worker processes, namely rank 1", "Start the missing ones"]),
    (0, ["no coordinator has answered at tcp://127.0.0.1:", "Is one started there (by rank 0 of a script"]),
])  # fmt: skip
def test_a_rank_that_dies_before_init_is_named(tmp_path, dead, words):
    script = write(tmp_path, f"""
import os, psring
if os.environ["PSRING_RANK"] == "{dead}":
    raise OSError("no data at x")
psring.init()
""")
    last = fails(script, env={"PSRING_JOIN_TIMEOUT_S": "2"})
    assert last[dead] == "OSError: no data at x"
    assert all(word in last[1 - dead] for word in words), last


@needs_library
def test_two_jobs_on_one_port_do_not_mix(tmp_path):
    script = write(tmp_path, """
import sys, psring
psring.init()
print("here", flush=True)
sys.stdin.readline()
print(psring.sum(1))
""")
    port = free_port()
    command = [sys.executable, script]

    def env(rank, size):
        place = {"PSRING_RANK": rank, "PSRING_SIZE": size, "PSRING_COORDINATOR": f"127.0.0.1:{port}"}
        return {**os.environ, "PYTHONPATH": PYTHONPATH, **{name: str(value) for name, value in place.items()}}

    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env(0, 1), stdin=pipe, stdout=pipe, text=True) as first:
        try:
            assert first.stdout.readline() == "here\n"
            second = [
                subprocess.run(command, env=env(rank, 2), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
                for rank in range(2)
            ]
            assert first.communicate("\n", timeout=60)[0] == "1\n" and first.returncode == 0
        finally:
            first.kill()
    assert [ran.returncode for ran in second] == [1, 1]
    assert f":{port}: Address already in use. Another process listens there: stop it, or choose another port" in second[0].stderr
    assert f":{port} refuses this process: workers: 2 here, 1 in the job" in second[1].stderr


START = """
import torch, psring.torch as ps
ps.init(step_timeout_s=timeout)
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
def optimizer():
    return ps.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), named_parameters=net.named_parameters(), bucket_mb=1e-5)
"""
TRAIN = """
opt = optimizer()
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        if how == "backward" and ps.rank() == 1 and step == 2: raise ArithmeticError("bad gradient")
        return gradient
for step in range(4):
    if how == "skips" and ps.rank() == 1 and step == 2: continue
    opt.zero_grad()
    net[1](Own.apply(net[0](torch.ones(1, 2)))).sum().backward()
    opt.step()
"""
REMEDY = (
    "If it has fewer batches, give each rank as many, or let it call join() after its last one (psring.torch.join(); "
    "with Keras and JAX psring.join(), for update=\"local\" alone); "
    "if it takes longer, increase step_timeout_s"
)


@needs_library
@pytest.mark.parametrize("mode, how, script, words", [
    ("ring", "between", 'if ps.rank() == 1: raise OSError("no data at x")\noptimizer()', ["worker 1 (host ", "no data at x"]),
    ("ps", "backward", TRAIN, ["worker 1 (host ", "ArithmeticError: bad gradient"]),
    ("ring", "dtype", "if ps.rank() == 1: net.double()\noptimizer()",
     ["worker 1 (host ", "TypeError: 0.weight is torch.float64", "convert the model with model.float()"]),
    ("ps", "models", "if ps.rank() == 1: net[1] = torch.nn.Linear(2, 3)\noptimizer()",
     ["ranks 0 and 1 differ: tensor 2, 1.weight float32[2, 2] on rank 0, tensor 2, 1.weight float32[3, 2] on rank 1",
      "All ranks must have the same model"]),
    # Rank 0 finds out after half of the timeout, and tells rank 1, which waits for the end of the job.
    ("ring", "skips", TRAIN, ["worker 1 (host ", "has left the job, but step 3 of 'model.noname.0' needs it",
                              "all workers make the same number of steps, or call join()"]),
    ("ps", "skips", TRAIN, ["step 3", "worker 1 (host ", REMEDY]),
])  # fmt: skip
def test_bad_input_is_one_clear_error_on_all_ranks(tmp_path, mode, how, script, words):
    settings = f'how, timeout = "{how}", {(21 if mode == "ring" else 6) if how == "skips" else 60}'
    for rank, last in enumerate(fails(write(tmp_path, f"{settings}\n{START}\n{script}"), mode=mode)):
        if rank == 1 and how in ("between", "backward", "dtype"):
            words = words[1:]  # its own exception, which does not name it
        assert all(word in last for word in words), last
        assert last.count(words[-1]) == 1, last


def test_workers_that_begin_with_other_rates_learn_the_remedy(tmp_path):
    script = write(tmp_path, """
import sys, torch, psring.torch as ps
ps.init()
p = torch.nn.Parameter(torch.zeros(4))
opt = ps.DistributedOptimizer(torch.optim.SGD([p], lr=0.1 * (1 + ps.rank()), momentum=0.9))
if sys.argv[1:]:
    ps.broadcast_optimizer_state(opt)
p.sum().backward()
opt.step()
""")
    env = {"PSRING_SYNC": "async"}
    for code, _, err in run_script(script, 2, mode="ps", env=env):
        assert code != 0 and "optimizer.lr: 0.2 in worker 1, 0.1 in worker 0" in err
    assert "broadcast_optimizer_state(optimizer) before the first step" in err
    assert [code for code, _, _ in run_script(script, 2, mode="ps", env=env, args=["remedy"])] == [0, 0]


def test_a_model_is_free_again_where_no_thread_could_be_had(tmp_path):
    script = write(tmp_path, """
import ctypes, torch, psring, psring.torch as ps
ps.init()
net = torch.nn.Linear(1, 1)
optimizer = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net, update="fused")
net(torch.ones(1, 1)).sum().backward()
optimizer.step()
libc = ctypes.CDLL(None)
usual, huge = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
libc.pthread_getattr_default_np(usual)
libc.pthread_attr_init(huge)
libc.pthread_attr_setstacksize(huge, ctypes.c_size_t(1 << 48))  # more than there are addresses
libc.pthread_setattr_default_np(huge)
try:
    optimizer.synchronize_parameters()
except psring.PsringError as error:
    print(error)
libc.pthread_setattr_default_np(usual)
optimizer.synchronize_parameters()
""")
    [(code, out)] = [rank[:2] for rank in run_script(script, 1)]
    assert code == 0, out
    assert "cannot start a thread" in out


def test_log_writes_json_lines(tmp_path):
    script = write(tmp_path, """
import torch, psring.torch as ps
ps.init()
ps.log(loss=torch.tensor(0.5), accuracy=1)
ps.log(loss=2.0, step=7)
ps.log(loss=3.0)
""")
    folder = tmp_path / "metrics"
    folder.mkdir()
    ranks = run_script(script, 2, env={"PSRING_METRICS_DIR": str(folder)})
    assert [r[0] for r in ranks] == [0, 0] and ranks[0][1] == ""
    for rank in range(2):
        lines = [json.loads(line) for line in (folder / f"worker-{rank}.jsonl").read_text().splitlines()]
        epoch, *steps, end = [line for line in lines if line["event"] != "start"]
        assert (epoch["event"], epoch["epoch"], epoch["test_accuracy"], epoch["train_loss"]) == ("epoch", 1, 1, 0.5)
        assert [(line["step"], line["loss"]) for line in steps] == [(7, 2.0), (0, 3.0)]
        assert (end["event"], end["step"]) == ("end", 0)


def test_log_joins_what_is_told_of_one_evaluation(tmp_path):
    script = write(tmp_path, """
import torch, psring.torch as ps
ps.init()
net = torch.nn.Linear(1, 1)
optimizer = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
for loss, accuracy in ((2.0, 0.5), (1.0, 0.7), (float("nan"), 0.1)):
    net(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    ps.log(test_loss=loss)
    ps.log(accuracy=accuracy)
ps.log(test_loss=5.0)  # another one, after as many steps
ps.log(test_loss=4.0, epoch=4)  # an epoch of the script's own
ps.log(loss=float("inf"))
try:
    ps.log(event="end", loss=1.0)
except ValueError as error:
    print(error)
""")
    folder = tmp_path / "metrics"
    folder.mkdir()
    [(code, out)] = [rank[:2] for rank in run_script(script, 1, env={"PSRING_METRICS_DIR": str(folder)})]
    assert code == 0, out
    lines = [json.loads(line) for line in (folder / "worker-0.jsonl").read_text().splitlines()]
    told = [
        (line["epoch"], line["step"], line["test_loss"], line["test_accuracy"], line.get("not_finite"))
        for line in lines if line["event"] == "epoch"
    ]  # fmt: skip
    assert told == [
        (1, 1, 2.0, None, None), (1, 1, None, 0.5, None), (2, 2, 1.0, None, None), (2, 2, None, 0.7, None),
        (3, 3, None, None, ["test_loss"]), (3, 3, None, 0.1, None), (4, 3, 5.0, None, None),
        (5, 3, 4.0, None, None),
    ]  # fmt: skip
    assert [(line["loss"], line.get("not_finite")) for line in lines if line["event"] == "step"] == [(None, ["loss"])]
    assert "log(event=...): psring says that of each line itself" in out
    progress = [line for line in lines if line["event"] == "progress"]
    assert progress[0]["step"] == 0 and progress[0]["seconds"] > 0


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_a_rank_that_hangs_is_named_with_what_it_does(tmp_path, mode):
    script = write(tmp_path, f"""
import time, torch, psring.torch as ps
ps.init(mode="{mode}", step_timeout_s=6)
net = torch.nn.Linear(2, 2)
opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
for step in range(1000):
    if ps.rank() == 1 and step == 3:
        time.sleep(1000)
    net(torch.ones(1, 2)).sum().backward()
    opt.step()
""")
    processes = start(script, 3)
    try:
        for rank in (0, 2):
            _, err = processes[rank].communicate(timeout=120)
            assert processes[rank].returncode == 1
            last = err.strip().splitlines()[-1]
            assert "worker 1 (host " in last and "hangs" in last and "running the script" in last, err
        if os.environ.get("PSRING_LIBRARY"):
            # It says itself where it is, and goes on.
            assert processes[1].poll() is None
            processes[1].kill()
            stack = processes[1].communicate(timeout=30)[1]
            assert "most recent call first" in stack and 'script.py", line 8 in <module>' in stack, stack
    finally:
        for process in processes:
            process.kill()


@needs_library
def test_an_error_after_a_timeout_that_was_caught_is_the_ranks_own(tmp_path):
    script = write(tmp_path, """
import atexit, os, sys, time, psring
psring.init(step_timeout_s=2)
if psring.rank() == 1:
    try:
        psring.barrier(name="caught")
    except psring.PsringError as error:
        print("caught", error)
    time.sleep(2)
    atexit.register(lambda: open(sys.argv[1], "w").close())  # after others have been told
    raise ValueError("bad sample 17")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
psring.barrier()
""")
    ranks = run_script(script, 2, args=[str(tmp_path / "raised")])
    assert ranks[1][1].startswith("caught")
    last = ranks[0][2].strip().splitlines()[-1]
    assert last.startswith("psring: worker 1 (host ") and last.endswith("ValueError: bad sample 17"), last


@needs_library
def test_a_join_that_nobody_else_calls_in_time_says_the_remedy_and_may_be_called_again(tmp_path):
    script = write(tmp_path, """
import os, sys, time, psring
psring.init(step_timeout_s=4)
if psring.rank() == 1:
    try:
        psring.join()
    except psring.PsringError as error:
        print(error)
    open(sys.argv[1], "w").close()
else:
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
print(psring.join())
""")
    ranks = run_script(script, 2, args=[str(tmp_path / "caught")])
    assert [status for status, _, _ in ranks] == [0, 0], ranks
    assert "nothing from worker 0" in ranks[1][1] and REMEDY in ranks[1][1], ranks


def test_a_rank_that_waits_for_nobody_hangs_after_its_own_time(tmp_path):
    script = write(tmp_path, """
import time, psring
psring.init(progress_timeout_s=4)
psring.barrier()
if psring.rank() == 1:
    time.sleep(1000)
psring.barrier()
""")
    processes = start(script, 2)
    try:
        _, err = processes[0].communicate(timeout=120)
        last = err.strip().splitlines()[-1]
        assert "worker 1 (host " in last and "hangs" in last and "progress_timeout" in last, err
    finally:
        for process in processes:
            process.kill()


@needs_library
def test_what_the_main_thread_calls_after_a_thread_has_failed_says_so(tmp_path):
    script = write(tmp_path, """
import threading, psring
psring.init()
if psring.rank() == 1:
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    try:
        psring.log(loss=1.0)
    except psring.JobFailedError:
        print("failed")
        raise
psring.barrier()
""")
    for rank, (code, out, err) in enumerate(run_script(script, 2)):
        assert (code, out) == (1, "failed\n" * rank), err
        last = err.strip().splitlines()[-1]
        assert last.startswith("psring: worker 1 (host ") and last.endswith("ZeroDivisionError: division by zero")
        assert err.count("Traceback") == rank, err  # the thread's own


def test_an_exit_that_the_script_catches_is_none(tmp_path):
    script = write(tmp_path, """
import sys, psring
psring.init()
try:
    sys.exit(3)
except SystemExit:
    pass
psring.barrier()
print("done")
""")
    assert run_script(script, 2) == [(0, "done\n", "")] * 2


@needs_library
def test_jobs_in_a_row_at_one_address_wait_for_each_other(tmp_path):
    """Rank 0, which has the coordinator, comes late to each."""
    script = write(tmp_path, """
import time, psring
for job in range(6):
    psring.init()
    assert psring.sum(1) == psring.size()
    rank = psring.rank()
    psring.shutdown()
    if rank == 0:
        time.sleep(0.3)
""")
    results = run_script(script, 3)
    assert [code for code, _, _ in results] == [0, 0, 0], results


@needs_library
@pytest.mark.parametrize("instead, told", [("", True), ("wrapped", False), ("by hand", False)])
def test_workers_that_train_each_for_itself_are_told_so(tmp_path, instead, told):
    script = write(tmp_path, f"""
import torch, psring.torch as ps
ps.init()
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
if "{instead}" == "wrapped":
    opt = ps.DistributedOptimizer(opt, model=net)
for step in range(20):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    if "{instead}" == "by hand":
        for p in net.parameters():
            ps.allreduce_(p.grad)
    opt.step()
ps.sum(1.0)
""")
    ranks = run_script(script, 2)
    assert all(code == 0 for code, _, _ in ranks)
    said = "worker 0 made 20 steps of an optimizer that psring does not know, and the 2 workers have exchanged almost"
    assert (said in ranks[0][2]) == told and said not in ranks[1][2], ranks


@needs_library
@pytest.mark.parametrize("mode", ["ring", "ps"])
@pytest.mark.parametrize("given, error", [("loss", "ranks 0 and 1 differ: lr=0.1 of param_groups[0] on rank 0"), ("ps.mean(loss)", "")])
def test_a_schedule_that_goes_by_a_ranks_own_loss_is_an_error(tmp_path, mode, given, error):
    script = write(tmp_path, f"""
import torch, psring.torch as ps
ps.init()
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)  # without a momentum rank 0's loss falls in each step
opt = ps.DistributedOptimizer(opt, model=net)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)
for step in range(30):
    opt.zero_grad()
    loss = net(torch.ones(2, 3)).pow(2).sum() + ps.rank() * step
    loss.backward()
    opt.step()
    schedule.step({given})
""")
    ranks = run_script(script, 2, mode=mode)
    assert all((code != 0) == bool(error) for code, _, _ in ranks), ranks
    assert error in ranks[0][2] and (not error or "as many batches" in ranks[0][2]), ranks[0][2]
