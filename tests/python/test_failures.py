"""How a job ends: well, by an exception, by Ctrl-C, by exit codes, by forks."""

import os
import signal
import time

import pytest

import psring
from ranks import run_script, start


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
    assert all(float(out.split()[-1]) - failed < 5 for _, out, _ in ranks)
    for rank, (code, out, err) in enumerate(ranks):
        assert code == 1, (rank, code, err)
        if rank == 1:
            assert "Traceback" in err and err.count("no such file") == 2  # its line, and the exception
        else:
            last = err.strip().splitlines()[-1]
            assert last.startswith("psring: worker 1 (host ") and last.endswith("ValueError: no such file: x")
            assert "Traceback" not in err and err.count("no such file") == 1


@pytest.mark.parametrize("line, code", [("sys.exit(3)", 3), ("sys.exit('bad data')", 1), ("raise SystemExit(4)", 1)])
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
    assert "worker 1 (host " in ranks[0][2].strip().splitlines()[-1]


@pytest.mark.skipif(not os.environ.get("PSRING_LIBRARY"), reason="PSRING_LIBRARY is not set: the stand-in would wait")
def test_a_group_that_one_rank_adds_alone_is_named_with_the_remedy(tmp_path):
    script = write(tmp_path, """
import torch, psring.torch as ps
ps.init()
net, extra = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
opt = ps.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
for step in range(4):
    if step == 2 and ps.rank() == 0:
        opt.add_param_group({"params": extra.parameters()})
    opt.zero_grad()
    net(torch.ones(2, 4)).sum().backward()
    opt.step()
""")
    ranks = run_script(script, 2)
    assert all(code != 0 for code, _, _ in ranks)
    assert "rank 0 calls add_param_group()" in ranks[0][2] + ranks[1][2]
    assert "all ranks add the same group before the same step" in ranks[0][2] + ranks[1][2]


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
import psring, time
psring.init()
print("here", flush=True)
if psring.rank() == 0:
    psring.barrier()
time.sleep(5)
psring.barrier(name="other")
""")
    processes = start(script, 2)
    for process in processes:
        assert process.stdout.readline() == "here\n"
    time.sleep(0.3)
    processes[0].send_signal(signal.SIGINT)
    ends = [p.communicate(timeout=30) for p in processes]
    assert "KeyboardInterrupt" in ends[0][1]
    assert "KeyboardInterrupt" in ends[1][1].strip().splitlines()[-1], ends[1]
    assert processes[0].returncode != 0 and processes[1].returncode == 1


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


@pytest.mark.parametrize("abi, words", [(7, "has interface 7"), (1, "has no psring_version")])
def test_a_library_of_another_version_is_refused(monkeypatch, abi, words):
    class Function:
        def __call__(self):
            return abi

    older = type("Older", (), {"psring_abi": Function()})()
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: older)
    with pytest.raises(ImportError, match=f"{words}.* same version of psring"):
        psring._lib._load()


def test_log_writes_json_lines(tmp_path):
    import json

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
