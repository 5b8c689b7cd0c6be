"""psring.torch.elastic: what a job that is started again goes on from."""

import contextlib
import io
import os
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import psring.torch as hvd
import ranks
from psring import _elastic

# Ranks that FAIL names are killed before a step: after so many restarts, and steps in all.
SCRIPT = """
import os, signal, zlib
import torch
import psring.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
x = torch.randn(60, 8, generator=torch.Generator().manual_seed(1))
dataset = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long(), torch.arange(60))
sampler = hvd.elastic.ElasticSampler(dataset)
loader = torch.utils.data.DataLoader(dataset, batch_size=5, sampler=sampler)
state = hvd.elastic.TorchState(model, optimizer, scheduler=scheduler, sampler=sampler, epoch=0, step=0)

def of_another_size():
    print("the commit is of another size", flush=True)
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * hvd.size()

state.register_reset_callbacks([of_another_size])
FAIL = FAIL_WHERE

@hvd.elastic.run
def train(state, epochs):
    print(f"begins at step {state.step}", flush=True)
    while state.epoch < epochs:
        for batch, (images, labels, numbers) in enumerate(loader):
            if FAIL.get(int(os.environ["PSRING_RESTARTS"])) == (hvd.rank(), state.step):
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            print("epoch", state.epoch, "trains on", numbers.tolist(), flush=True)
            state.step += 1
            sampler.record_batch(batch, len(images))
            if state.step % 2 == 0:
                state.commit()
            if state.step == STOPS:
                raise SystemExit(3)
        scheduler.step()
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()

train(state, 2)
print("ends at step", state.step, "with", zlib.crc32(b"".join(p.detach().numpy().tobytes() for p in model.parameters())))
"""
with_programs = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY") or not os.path.exists(ranks.PROGRAM),
    reason="PSRING_LIBRARY is not set, or the programs are not built: ./psring build",
)


def job(folder, *flags, workers=2, fail="{}", stops=-1, timeout=300):
    """(exit code, what it says); what it leaves in $TMPDIR, folder/tmp, is there afterwards."""
    script = folder / "script.py"
    script.write_text(SCRIPT.replace("FAIL_WHERE", fail).replace("STOPS", str(stops)))
    (folder / "tmp").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name != "PSRING_STATE_DIR"}
    ran = subprocess.run(
        [ranks.PROGRAM, "run", f"-n={workers}", *flags, "--", sys.executable, str(script)],
        env={**kept, "PYTHONPATH": ranks.PYTHONPATH, "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
    )  # fmt: skip
    return ran.returncode, ran.stdout


def of_rank(said, rank, pattern):
    return re.findall(rf"^\[worker {rank}\] {pattern}", said, re.M)


def trained_on(said, epoch, workers):
    """The numbers of the samples, sorted."""
    lists = [of_rank(said, rank, rf"epoch {epoch} trains on \[(.*)\]") for rank in range(workers)]
    return sorted(int(number) for of in lists for text in of for number in text.split(","))


@with_programs
@pytest.mark.parametrize(
    "way",
    [["--mode=ring"], ["--mode=ring", "--update=fused"], ["--mode=ps", "--servers=2", "--update=fused"]],
    ids=["ring", "ring-fused", "ps-fused"],
)
def test_a_job_that_loses_processes_ends_with_the_bits_of_one_that_does_not(tmp_path, way):
    code, whole = job(tmp_path, *way)
    assert code == 0, whole
    assert len(of_rank(whole, 0, r"psring: commit\(\) keeps nothing, .* --max-restarts=N")) == 1, whole
    code, parts = job(tmp_path, *way, "--max-restarts=2", fail="{0: (1, 3), 1: (0, 9)}")
    assert code == 0, parts
    assert "keeps nothing" not in parts, parts
    for rank in (0, 1):
        assert of_rank(parts, rank, r"begins at step (\d+)") == ["0", "2", "8"], parts
    assert of_rank(whole, 0, "ends at step 12 with .*") == of_rank(parts, 0, "ends at step 12 with .*") != [], parts
    assert "another size" not in parts
    assert list((tmp_path / "tmp").iterdir()) == []


@with_programs
def test_another_number_of_workers_goes_on_with_the_rest_of_the_epoch(tmp_path):
    folder = tmp_path / "state"
    code, first = job(tmp_path, f"--state-dir={folder}", stops=4)
    assert code == 3 and os.listdir(folder) == ["state.pt"], first
    code, then = job(tmp_path, f"--state-dir={folder}", workers=4)
    assert code == 0, then
    for rank in range(4):
        assert of_rank(then, rank, r"begins at step (\d+)") == ["4"], then
        assert len(of_rank(then, rank, "the commit is of another size")) == 1, then
    assert sorted(trained_on(first, 0, 2) + trained_on(then, 0, 4)) == list(range(60))
    assert trained_on(then, 1, 4) == list(range(60))
    # One that has ended has nothing left to do.
    code, after = job(tmp_path, f"--state-dir={folder}", workers=4)
    assert code == 0 and of_rank(after, 0, "ends .*") == of_rank(then, 0, "ends .*"), after


def restores(folder):
    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    model = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model=model)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=hvd.rank(), names=["a"])
    with pytest.raises(RuntimeError, match="nothing has been committed"):
        state.restore()
    state.sync()

    def step():
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        return model.weight.tolist()

    first = step()
    state.epoch += 1
    state.commit()
    second = step()
    state.epoch, state.names = 7, []
    state.restore()
    assert state.model is model and model.weight.tolist() == first != second
    assert step() == second  # with the optimizer's momentum
    return state.epoch, state.names, model.weight.tolist()


def test_restore_goes_back_to_the_last_commit(tmp_path):
    results = ranks.run(restores, args=(str(tmp_path / "state"),))
    assert results[0] == results[1] and results[0][:2] == (1, ["a"])


def begins_twice(folder):
    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    state = hvd.elastic.TorchState(epoch=0)

    @hvd.elastic.run
    def train(state, epochs):
        begins = state.epoch
        while state.epoch < epochs:
            state.epoch += 1
            if state.epoch % 2 == 0:
                state.commit()
        return begins

    return train(state, 3), train(state, 5)


def test_a_second_call_in_one_process_keeps_what_is_newer_than_the_commit(tmp_path):
    assert ranks.run(begins_twice, args=(str(tmp_path),)) == [(0, 3)] * 2


def commits_first(folder):
    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    begins = []

    @hvd.elastic.run
    def train(state):
        begins.append(state.epoch)
        state.epoch += 1
        state.commit()

    for _ in range(2):  # as two starts
        _elastic._made.clear()
        state = hvd.elastic.TorchState(epoch=0)
        state.commit()
        train(state)
    return begins


def test_a_commit_before_the_job_goes_on_replaces_none_of_an_earlier_start(tmp_path):
    assert ranks.run(commits_first, args=(str(tmp_path),)) == [[0, 1]] * 2


class WithMore(torch.nn.Linear):
    """Its state has an object that is no tensor."""

    more = io.BytesIO(b"")

    def get_extra_state(self):
        return self.more

    def set_extra_state(self, more):
        self.more = more


def restores_more(folder):
    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    state = hvd.elastic.TorchState(model=WithMore(2, 1))
    state.sync()
    state.model.more = io.BytesIO(b"a scale")
    state.commit()
    state.model.more = io.BytesIO(b"")
    state.restore()
    return state.model.more.getvalue()


def test_a_model_whose_state_has_other_objects_is_restored(tmp_path):
    assert ranks.run(restores_more, args=(str(tmp_path),)) == [b"a scale"] * 2


class OfThirdVersion(torch.nn.Linear):
    """Tells of which version the state is that it takes."""

    _version = 3
    taken = None

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *more):
        self.taken = local_metadata.get("version")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *more)


def restores_a_version(folder):
    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    state = hvd.elastic.TorchState(model=OfThirdVersion(2, 1))
    state.commit()
    state.restore()
    return state.model.taken


def test_modules_learn_of_which_version_their_state_is_on_all_ranks(tmp_path):
    assert ranks.run(restores_a_version, args=(str(tmp_path),)) == [3] * 2


class OfTheScript(hvd.elastic.TorchState):
    """With a value that all ranks have by sync() alone, as Horovod's documentation shows for custom types."""

    def __init__(self, **values):
        super().__init__(**values)
        self.calls, self.table = [], {"of": hvd.rank()}

    def save(self):
        self.calls.append("save")
        super().save()

    def restore(self):
        self.calls.append("restore")
        super().restore()

    def sync(self):
        self.calls.append("sync")
        self.table = hvd.broadcast_object(self.table)
        super().sync()


class WithoutItsBase(hvd.elastic.TorchState):
    def restore(self):
        self.epoch = 40


def overrides(folder):
    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    said = []

    @hvd.elastic.run
    def train(state):
        state.epoch += 1
        state.commit()

    for kind in (OfTheScript, OfTheScript, WithoutItsBase, hvd.elastic.TorchState):  # as starts of the job
        _elastic._made.clear()
        state = kind(epoch=0)
        train(state)
        said.append((state.epoch, getattr(state, "calls", None), getattr(state, "table", None)))
    return said


def test_methods_of_a_scripts_own_class_are_called_as_horovods(tmp_path):
    assert ranks.run(overrides, args=(str(tmp_path),)) == [[
        (1, ["sync", "save"], {"of": 0}), (2, ["restore", "sync", "save"], {"of": 0}), (41, None, None), (42, None, None),
    ]] * 2  # fmt: skip


def moves(folder):
    hvd.init()
    os.environ["PSRING_STATE_DIR"] = os.path.relpath(folder)
    os.chdir("/")
    state = hvd.elastic.TorchState(epoch=1)
    state.commit()
    state.epoch = 2
    state.restore()
    return state.epoch, os.listdir(folder)


def test_a_relative_folder_stays_where_the_script_goes_to_another_one(tmp_path):
    assert ranks.run(moves, size=1, args=(str(tmp_path),)) == [(1, ["state.pt"])]


def refuses(folder):
    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    path = os.path.join(folder, "state.pt")
    said = []

    def told(call):
        said.append(ranks.error_of_first_state(call))

    def train(state):
        raise AssertionError("begins")

    train = hvd.elastic.run(train)
    hvd.elastic.TorchState(epoch=1, batch=2).commit()
    told(lambda: train(hvd.elastic.TorchState(epoch=1)))
    told(lambda: train(hvd.elastic.TorchState(epoch=torch.nn.Linear(1, 1), batch=2)))
    with open(path, "r+b") as file:
        file.truncate(100)
    told(lambda: train(hvd.elastic.TorchState(epoch=1, batch=2)))
    torch.save({"weights": 1}, path)
    told(lambda: train(hvd.elastic.TorchState(epoch=1, batch=2)))
    told(lambda: train(3))
    told(lambda: hvd.elastic.TorchState(commit=1))
    os.remove(path)
    os.symlink("/dev/full", path + ".new")
    told(lambda: hvd.elastic.TorchState(epoch=1).commit())
    os.environ["PSRING_STATE_DIR"] = path + ".new/folder"
    told(lambda: hvd.elastic.TorchState(epoch=1).commit())
    told(lambda: train(hvd.elastic.TorchState(epoch=1)))
    os.environ["PSRING_STATE_DIR"] = other = os.path.join(folder, "other")
    told(lambda: hvd.elastic.TorchState(epoch=lambda: 1, batch=2).commit())
    assert os.listdir(other) == []
    _elastic._made.clear()
    hvd.elastic.TorchState(model=torch.nn.Linear(1, 1)).commit()
    told(lambda: train(hvd.elastic.TorchState(model=torch.nn.Linear(2, 1))))
    os.environ["PSRING_STATE_DIR"] = ""
    with contextlib.redirect_stderr(io.StringIO()) as warned:
        hvd.elastic.TorchState(epoch=1).commit()
    return [*said, warned.getvalue()]


def test_refusals_name_the_file_and_the_remedy(tmp_path):
    (said,) = ranks.run(refuses, size=1, args=(str(tmp_path),))
    file = f"{tmp_path}/state.pt"
    words = [
        f"RuntimeError: {file} has been committed by a TorchState of batch, epoch, and this one is of epoch. Without that file",
        f"RuntimeError: {file} has been committed by a TorchState of batch, epoch, and this one is of batch, epoch (with state_dict()). Without",
        f"RuntimeError: {file} is no commit that can be read (",
        f"RuntimeError: {file} is no commit that can be read (KeyError: 'format'). Without that file the job begins anew",
        "TypeError: train() takes a TorchState first, not int",
        "ValueError: TorchState(commit=...): commit has a meaning of its own here. Choose another name",
        f"OSError: commit() cannot write {file}: ",
        f"OSError: commit() cannot write {file}.new/folder/state.pt: ",
        f"OSError: PSRING_STATE_DIR: cannot make {file}.new/folder: ",
        "TypeError: commit() of epoch, batch: a value cannot be pickled: ",
        "RuntimeError: model is not as it was in the last commit, state.pt: Error(s) in loading state_dict for Linear",
        "psring: commit() keeps nothing, as PSRING_STATE_DIR is set to nothing\n",
    ]
    assert len(said) == len(words) and all(text.startswith(word) for text, word in zip(said, words)), said


class Runs:
    """What another user could put into a commit."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return (open, (self.file, "w"))


def reads_of_another_user(folder):
    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    path, traces = os.path.join(folder, "state.pt"), os.path.join(folder, "traces")
    torch.save(Runs(traces), path)
    os.chown(path, 65534, 65534)
    with pytest.raises(RuntimeError) as refused:
        hvd.elastic.TorchState(epoch=1).restore()
    assert not os.path.exists(traces)
    os.remove(path)
    with open(traces, "w") as file:
        file.write("of this user")
    os.symlink(traces, path + ".new")
    _elastic._made.clear()
    with pytest.raises(OSError):
        hvd.elastic.TorchState(epoch=1).commit()
    with open(traces) as file:
        return str(refused.value), file.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_user_of_the_folder_runs_no_code_and_redirects_no_commit(tmp_path):
    ((refused, kept),) = ranks.run(reads_of_another_user, size=1, args=(str(tmp_path),))
    assert f"it belongs to user 65534, and what it holds can run code. If you trust that user: chown 0 {tmp_path}/state.pt" in refused
    assert kept == "of this user"


def deals(length):
    hvd.init()
    sampler = hvd.elastic.ElasticSampler(range(length), seed=5)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
    sampler.record_batch(0, 2)
    saved = sampler.state_dict()
    again = hvd.elastic.ElasticSampler(range(length), seed=5)
    again.load_state_dict(saved)
    in_order = list(hvd.elastic.ElasticSampler(range(length), shuffle=False))
    return epochs, list(again), in_order, len(sampler)


@pytest.mark.parametrize("length", [12, 10, 1, 0])
def test_a_sampler_deals_every_sample_and_as_many_to_each(length):
    dealt = ranks.run(deals, size=3, args=(length,))
    each = -(-length // 3)
    for epoch in (0, 1):
        all_of_it = [number for epochs, _, _, _ in dealt for number in epochs[epoch]]
        assert set(all_of_it) == set(range(length)) and len(all_of_it) == 3 * each
    if length > 1:
        assert dealt[0][0][0] != dealt[0][0][1]
    for rank, (epochs, again, in_order, length_of_it) in enumerate(dealt):
        assert length_of_it == each
        assert in_order == [(rank + 3 * i) % length for i in range(each)]
        if length == 12:
            assert again == epochs[1][2:]
