"""Lightning's Trainer with psring's strategy: what it trains, saves, logs and measures is the whole job's."""

import glob
import os
import subprocess
import sys
import time

import pytest
import torch

from ranks import PYTHONPATH, run
from test_other_frameworks import needs

BATCH, SAMPLES = 8, 64


@pytest.fixture(autouse=True)
def lightning():
    needs("torch", "lightning")


def module(**more):
    """A classifier of 64 samples. `more`: its attributes."""
    import lightning
    import torchmetrics

    class Classifier(lightning.LightningModule):
        optimizer, schedule, fails_at, batch_norm = "adam", False, None, False

        def __init__(self):
            super().__init__()
            self.__dict__.update(more)
            torch.manual_seed(0)
            norm = [torch.nn.BatchNorm1d(8)] if self.batch_norm else []
            self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), *norm, torch.nn.Tanh(), torch.nn.Linear(8, 3))
            self.seen = torchmetrics.CatMetric()

        def loss(self, batch):
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def training_step(self, batch, index):
            if self.fails_at == self.global_step and self.global_rank == 1:
                raise RuntimeError("out of luck")
            return self.loss(batch)

        def validation_step(self, batch, index):
            self.log("validation_loss", self.loss(batch), sync_dist=True)
            self.log("samples", len(batch[0]), sync_dist=True, reduce_fx="sum")
            self.seen.update(batch[2])

        def on_validation_epoch_end(self):
            self.log("number_seen", float(len(torch.unique(self.seen.compute()))), rank_zero_only=True)
            self.seen.reset()

        def configure_optimizers(self):
            make = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[self.optimizer]
            opt = make(self.parameters(), lr=0.02)
            return ([opt], [torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)]) if self.schedule else opt

    return Classifier()


def loader(batch, shuffle=False, ranks=0, rank=0):
    """Of `ranks` workers each takes every so-manieth sample, where Lightning would shuffle them anew."""
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(SAMPLES, 4, generator=g), torch.randint(3, (SAMPLES,), generator=g)
    data = torch.utils.data.TensorDataset(x, y, torch.arange(float(SAMPLES)))
    sampler = torch.utils.data.DistributedSampler(data, ranks, rank, shuffle=False) if ranks else None
    return torch.utils.data.DataLoader(data, batch, shuffle=shuffle, sampler=sampler)


def trainer(folder, **more):
    import lightning

    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "enable_checkpointing": False}
    return lightning.Trainer(accelerator="cpu", default_root_dir=folder, **{**quiet, "max_epochs": 2, **more})


def weights(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def fit(options, of_module, of_trainer, folder):
    """Weights, and what the Trainer knows, of a job's fit()."""
    from psring.lightning import PsringStrategy

    strategy = PsringStrategy(**options)
    import psring.torch as ps

    model = module(**of_module)
    if ps.rank() == 1:
        torch.nn.init.zeros_(model.net[0].weight)  # the strategy makes it rank 0's
    job = trainer(folder, strategy=strategy, **of_trainer)
    job.fit(model, loader(BATCH, ranks=ps.size(), rank=ps.rank()), loader(BATCH))
    found = {name: value.item() for name, value in job.callback_metrics.items()}
    return weights(model), (job.global_rank, job.world_size), found


def alone(of_module, of_trainer, folder):
    """The same steps of one process: the batches of both workers, together."""
    model = module(**of_module)
    trainer(folder, **of_trainer).fit(model, loader(2 * BATCH))
    return weights(model)


HABITS = {
    "plain": ({}, {}), "sgd": ({"optimizer": "sgd"}, {}), "clip": ({}, {"gradient_clip_val": 0.05}),
    "accumulate": ({"schedule": True}, {"accumulate_grad_batches": 2}),
}  # fmt: skip


def fit_all(update, folder):
    """fit() of each habit; of all but one whose update clips each worker's own gradients, not the mean."""
    habits = [name for name in HABITS if name != "clip" or update != "fused"]
    return {name: fit({"update": update} if update else {}, *HABITS[name], folder) for name in habits}


@pytest.mark.parametrize("mode, update", [("ring", ""), ("ring", "fused"), ("ps", ""), ("ps", "fused"), ("ddp", "")])
def test_fit_takes_the_steps_of_one_process_with_all_batches(mode, update, tmp_path):
    first, second = run(fit_all, mode=mode, timeout=120, args=(update, str(tmp_path)))
    for habit, (found, place, metrics) in first.items():
        assert torch.equal(found, second[habit][0]), habit
        torch.testing.assert_close(found, alone(*HABITS[habit], str(tmp_path)), rtol=1e-4, atol=1e-5)
        assert (place, second[habit][1]) == ((0, 2), (1, 2))
        assert metrics["validation_loss"] == second[habit][2]["validation_loss"]
        assert metrics["samples"] == SAMPLES and metrics["number_seen"] == SAMPLES


def test_both_topologies_agree_bit_for_bit(tmp_path):
    found = [run(fit, mode=mode, timeout=120, args=({}, {}, {}, str(tmp_path)))[0][0] for mode in ("ring", "ps")]
    assert torch.equal(*found)


def test_workers_that_are_steps_apart_meet_for_validation_and_at_the_end(tmp_path):
    env = {"PSRING_SYNC": "async"}
    of_trainer = {"gradient_clip_val": 1.0}  # of each worker's gradients, before they leave
    first, second = run(fit, mode="ps", env=env, timeout=120, args=({}, {}, of_trainer, str(tmp_path)))
    assert torch.equal(first[0], second[0]) and first[2]["validation_loss"] == second[2]["validation_loss"]


def save_and_resume(update, folder):
    from lightning.pytorch.callbacks import ModelCheckpoint

    from psring.lightning import PsringStrategy

    def job(epochs, save):
        more = {"enable_checkpointing": True, "callbacks": [ModelCheckpoint(folder, save_last=True)]} if save else {}
        return trainer(folder, strategy=PsringStrategy(update=update), max_epochs=epochs, **more)

    whole, first, second = module(schedule=True), module(schedule=True), module(schedule=True)
    job(2, False).fit(whole, loader(BATCH))
    job(1, True).fit(first, loader(BATCH))
    torch.nn.init.zeros_(second.net[0].weight)
    job(2, False).fit(second, loader(BATCH), ckpt_path=os.path.join(folder, "last.ckpt"))
    plain = module()
    saved = torch.load(os.path.join(folder, "last.ckpt"), weights_only=False)
    plain.load_state_dict(saved["state_dict"])
    return torch.equal(weights(whole), weights(second)), torch.equal(weights(plain), weights(first))


@pytest.mark.parametrize("update", ["local", "fused"])
def test_a_checkpoint_holds_all_and_fit_continues_from_it(update, tmp_path):
    assert run(save_and_resume, timeout=150, args=(update, str(tmp_path))) == [(True, True)] * 2
    assert len(glob.glob(str(tmp_path / "*.ckpt"))) == 2  # of rank 0 alone


def between_workers(folder):
    from lightning.pytorch.callbacks import EarlyStopping

    from psring.lightning import PsringStrategy

    strategy = PsringStrategy()
    import psring.torch as ps

    me, out = ps.rank(), []
    out.append(strategy.broadcast({"from": me}, 1) == {"from": 1})
    out.append(strategy.reduce(torch.tensor(me + 2)).item() == 2.5)
    out.append(strategy.reduce(torch.tensor(me + 2.0), reduce_op=torch.distributed.ReduceOp.MAX).item() == 3)
    out.append(strategy.reduce(3) == 3 and strategy.reduce_boolean_decision(me == 0, all=False))
    out.append(not strategy.reduce_boolean_decision(me == 0))
    out.append(strategy.all_gather(torch.full((2,), me)).tolist() == [[0, 0], [1, 1]])
    out.append(strategy.all_gather(torch.zeros(0, 3)).shape == (2, 0, 3))
    model = module(batch_norm=True)
    x = torch.ones(1, requires_grad=True)
    (strategy.all_gather(x, sync_grads=True) * torch.tensor([[1.0], [2.0]])).sum().backward()
    out.append(x.grad.item() > 0 and not strategy.all_gather(x).requires_grad)
    stop = EarlyStopping("validation_loss", patience=0, min_delta=10.0)
    job = trainer(folder, strategy=strategy, max_epochs=50, callbacks=[stop], sync_batchnorm=True)
    job.fit(model, loader(BATCH, shuffle=True), loader(BATCH))
    out.append(job.current_epoch < 5 and type(model.net[1]) is ps.SyncBatchNorm)
    out.append(strategy.broadcast(model.net[1].running_mean).equal(model.net[1].running_mean))
    job.save_checkpoint(os.path.join(folder, "after.ckpt"))
    again = job.validate(model, loader(BATCH), verbose=False)  # after its optimizers are closed
    out.append(again[0]["number_seen"] == SAMPLES)
    said = []
    for wrong in (
        lambda: PsringStrategy(model=model), lambda: strategy.reduce(x, reduce_op="median"),
        lambda: strategy.all_gather(x, group="some"), lambda: PsringStrategy(updte="fused"),
    ):  # fmt: skip
        try:
            wrong()
        except (TypeError, ValueError) as error:
            said.append(str(error))
    return out, said


def test_what_lightning_asks_of_a_strategy(tmp_path):
    for out, said in run(between_workers, timeout=150, args=(str(tmp_path),)):
        assert all(out), out
        assert [text.split(":")[0] for text in said] == [
            "PsringStrategy(model=...)", "reduce_op='median' is not supported by PsringStrategy",
            "PsringStrategy reduces over all workers", "PsringStrategy(updte=...)",
        ]  # fmt: skip


def at_the_end(folder):
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint

    from psring.lightning import PsringStrategy

    class Writes(Callback):
        def on_train_end(self, trainer, module):
            same.append(module.all_gather(weights(module)))
            torch.nn.init.constant_(module.net[0].weight, 7.0)

    same, model = [], module()
    more = {"enable_checkpointing": True, "callbacks": [Writes(), ModelCheckpoint(folder, save_last=True)]}
    job = trainer(folder, strategy=PsringStrategy(), precision="bf16-mixed", gradient_clip_val=1.0, **more)
    job.fit(model, loader(BATCH))
    job.save_checkpoint(os.path.join(folder, "end.ckpt"))
    saved = torch.load(os.path.join(folder, "end.ckpt"), weights_only=False)["state_dict"]["net.0.weight"]
    return torch.equal(*same[0]), bool((model.net[0].weight == 7).all() and (saved == 7).all()), len(job.callbacks)


@pytest.mark.parametrize(
    "mode, env", [("ring", {}), ("ring", {"PSRING_UPDATE": "fused"}), ("ps", {"PSRING_SYNC": "async"}), ("ddp", {})]
)
def test_what_callbacks_write_at_the_end_of_fit_stays(mode, env, tmp_path):
    first, second = run(at_the_end, mode=mode, env=env, timeout=120, args=(str(tmp_path),))
    assert first == second and first[:2] == (True, True)


def averaged(folder):
    from lightning.pytorch.callbacks import Callback, StochasticWeightAveraging

    from psring.lightning import PsringStrategy

    class Slow(Callback):
        def on_train_batch_end(self, trainer, *more):
            time.sleep(0.02 * trainer.global_rank)

    model = module(optimizer="sgd")
    average = StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1)
    trainer(folder, strategy=PsringStrategy(), max_epochs=4, callbacks=[average, Slow()]).fit(model, loader(BATCH))
    return weights(model)


def test_averages_of_workers_that_are_steps_apart_become_rank_0s(tmp_path):
    first, second = run(averaged, mode="ps", env={"PSRING_SYNC": "async"}, timeout=120, args=(str(tmp_path),))
    assert torch.equal(first, second)


def scaled(update, folder):
    from lightning.pytorch.plugins import MixedPrecision

    from psring.lightning import PsringStrategy

    model, scaler = module(), torch.amp.GradScaler("cpu", init_scale=64.0)
    precision = MixedPrecision("bf16-mixed", "cpu")
    precision.scaler = scaler  # what Trainer(precision="16-mixed") makes on a GPU
    job = trainer(folder, strategy=PsringStrategy(precision_plugin=precision, update=update))
    job.fit(model, loader(BATCH))
    return weights(model)


def test_a_fused_update_knows_the_trainers_scaler(tmp_path):
    found = [run(scaled, timeout=120, args=(update, str(tmp_path))) for update in ("local", "fused")]
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    assert all(torch.equal(*ranks) for ranks in found)


def trains_after_compile(folder):
    from psring.lightning import PsringStrategy

    model = module()
    model.compile(backend="eager")
    trainer(folder, strategy=PsringStrategy(), max_epochs=1).fit(model, loader(BATCH))
    return weights(model)


def test_a_compiled_module_trains(tmp_path):
    assert torch.equal(*run(trains_after_compile, timeout=120, args=(str(tmp_path),)))


def fails_and_saves(folder):
    from lightning.pytorch.callbacks import OnExceptionCheckpoint

    from psring.lightning import PsringStrategy

    more = {"enable_checkpointing": True, "callbacks": [OnExceptionCheckpoint(folder)]}
    trainer(folder, strategy=PsringStrategy(), **more).fit(module(fails_at=3), loader(BATCH))


def test_a_checkpoint_after_an_error_does_not_hide_it(tmp_path):
    with pytest.raises(AssertionError, match="(?s)worker 1 .*failed.*out of luck"):
        run(fails_and_saves, timeout=120, args=(str(tmp_path),))


def two_optimizers(update, folder):
    import lightning

    from psring.lightning import PsringStrategy

    class Pair(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.one, self.other = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)

        def training_step(self, batch, index):
            for part, opt in zip((self.one, self.other), self.optimizers()):
                self.toggle_optimizer(opt)
                opt.zero_grad()
                for half in range(2):  # their gradients come together
                    rows = slice(half, None, 2)
                    self.manual_backward(torch.nn.functional.cross_entropy(part(batch[0][rows]), batch[1][rows]))
                opt.step()
                self.untoggle_optimizer(opt)

        def configure_optimizers(self):
            return [torch.optim.SGD(self.one.parameters(), 0.1), torch.optim.SGD(self.other.parameters(), 0.2)]

    model = Pair()
    strategy = PsringStrategy(update=update)
    before = weights(model)
    trainer(folder, strategy=strategy).fit(model, loader(BATCH))
    return weights(model), not weights(model).equal(before)


def test_manual_optimization_with_two_optimizers(tmp_path):
    local, fused = (run(two_optimizers, timeout=120, args=(update, str(tmp_path))) for update in ("local", "fused"))
    for first, second in (local, fused):
        assert torch.equal(first[0], second[0]) and first[1]
    torch.testing.assert_close(local[0][0], fused[0][0])


def test_a_worker_that_fails_ends_the_job_by_name(tmp_path):
    with pytest.raises(AssertionError, match="(?s)worker 1 .*failed.*out of luck"):
        run(fit, timeout=120, args=({}, {"fails_at": 3}, {}, str(tmp_path)))


def test_one_worker_alone_trains_as_without_psring(tmp_path):
    [(found, place, _)] = run(fit, size=1, timeout=120, args=({}, {}, {}, str(tmp_path)))
    model = module()
    trainer(str(tmp_path)).fit(model, loader(BATCH))
    assert torch.equal(found, weights(model)) and place == (0, 1)


def test_it_says_what_to_install_where_lightning_is_missing():
    code = (
        "import importlib.util as util\nfind = util.find_spec\n"
        "util.find_spec = lambda name: None if 'lightning' in name else find(name)\n"
        "import psring.lightning"
    )
    ran = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": PYTHONPATH}, capture_output=True, text=True)
    assert "ImportError: psring.lightning needs Lightning: pip install lightning" in ran.stderr
