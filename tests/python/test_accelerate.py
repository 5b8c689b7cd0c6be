"""Accelerate and Transformers' Trainer, as docs/python.md tells: over psring's topologies, and over its backend."""

import os

import pytest
import torch

from ranks import free_port, run
from test_other_frameworks import needs


@pytest.fixture(autouse=True)
def accelerate():
    needs("torch", "accelerate", "transformers")


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 70

    def __getitem__(self, index):
        words = torch.randint(0, 50, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": (words[0] > 25).long()}


def classifier():
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(int(os.environ["PSRING_RANK"]))  # psring, or DDP, makes it rank 0's
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def trainer(model, folder, train, **more):
    from transformers import Trainer, TrainingArguments

    save, kind = more.pop("save", True), more.pop("kind", Trainer)
    args = TrainingArguments(
        folder, per_device_train_batch_size=4, num_train_epochs=2, learning_rate=1e-2, use_cpu=True, report_to=[],
        save_strategy="epoch" if save else "no", save_only_model="PSRING_SYNC" in os.environ, disable_tqdm=True, gradient_accumulation_steps=2, eval_strategy="epoch",
        logging_steps=1,
    )  # fmt: skip
    return kind(model, args, train_dataset=train, eval_dataset=Words(), compute_metrics=seen, **more)


def seen(prediction):
    return {"seen": len(prediction.label_ids)}


def weights(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def trainer_in_a_job(folder):
    import psring.torch as ps

    ps.init()
    model = classifier()
    opt = ps.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=1e-2), model=model, backward_passes_per_step=2, overlap=False
    )
    whole = Words()
    mine = torch.utils.data.Subset(whole, range(ps.rank(), len(whole) // ps.size() * ps.size(), ps.size()))

    from transformers import Trainer

    class JobTrainer(Trainer):
        def training_step(self, *inputs, **more):
            loss = super().training_step(*inputs, **more)
            if self.accelerator.sync_gradients:
                opt.synchronize()  # an epoch's last step is of one pass
            return loss

    before = weights(model)
    job = trainer(model, folder, mine, optimizers=(opt, None), save=ps.rank() == 0, kind=JobTrainer)
    job.train()
    opt.synchronize_parameters()
    norms = [log["grad_norm"] for log in job.state.log_history if "grad_norm" in log]
    return weights(model), not weights(model).equal(before), job.state.global_step, norms


@pytest.mark.parametrize("env", [{}, {"PSRING_SYNC": "async"}], ids=["bsp", "async"])
def test_transformers_trains_in_both_topologies(env, tmp_path):
    found = {}
    for mode in ("ring", "ps") if not env else ("ps",):
        first, second = run(trainer_in_a_job, mode=mode, env=env, timeout=150, args=(str(tmp_path / mode),))
        assert torch.equal(first[0], second[0]) and first[1] and first[2] == second[2] == 10
        assert len(list((tmp_path / mode).glob("checkpoint-*"))) == 2
        assert len(first[3]) == 10 and (env or first[3] == second[3])  # what Trainer clips is the mean
        found[mode] = first[0]
    assert env or torch.equal(found["ring"], found["ps"])


def trainer_over_the_backend(folder):
    import psring.torch  # noqa: F401

    os.environ.update(RANK=os.environ["PSRING_RANK"], WORLD_SIZE="2", LOCAL_RANK=os.environ["PSRING_RANK"])
    torch.distributed.init_process_group("psring")
    model = classifier()
    job = trainer(model, folder, Words())
    job.train()
    return weights(model), job.evaluate()["eval_seen"], torch.distributed.get_backend()


def test_transformers_trains_over_the_backend(tmp_path):
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    first, second = run(trainer_over_the_backend, env=env, timeout=150, args=(str(tmp_path),))
    assert torch.equal(first[0], second[0]) and first[1:] == second[1:] == (70, "psring")


def accelerator_over_the_backend(folder):
    import accelerate

    import psring.torch  # noqa: F401

    os.environ.update(RANK=os.environ["PSRING_RANK"], WORLD_SIZE="2", LOCAL_RANK=os.environ["PSRING_RANK"])
    torch.distributed.init_process_group("psring")
    job = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(job.process_index)
    model = torch.nn.Linear(4, 2)
    data = torch.utils.data.TensorDataset(torch.arange(44.0).reshape(11, 4) / 44)
    model, opt, loader = job.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.1), torch.utils.data.DataLoader(data, 2)
    )
    for (x,) in loader:
        with job.accumulate(model):
            job.backward(model(x).square().mean())
            if job.sync_gradients:
                job.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
    everybody = [job.gather_for_metrics(x).shape[0] for (x,) in loader]
    job.save_state(folder)
    names = job.gather_for_metrics([f"rank {job.process_index}"], use_gather_object=True)
    return weights(model), sum(everybody), names, job.reduce(torch.tensor(job.process_index + 1.0), "mean").item()


def test_accelerate_trains_over_the_backend(tmp_path):
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    first, second = run(accelerator_over_the_backend, env=env, timeout=150, args=(str(tmp_path),))
    assert torch.equal(first[0], second[0])
    assert first[1:3] == second[1:3] == (11, ["rank 0", "rank 1"]) and (tmp_path / "model.safetensors").exists()
    assert first[3] == second[3] == 1.5
