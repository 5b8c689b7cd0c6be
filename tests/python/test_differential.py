"""Drawn trainings of two ranks, each compared with one process that averages their gradients by hand.

A case is a seed: it draws a model, an optimizer of torch's, settings of psring and what each step does.
With update="local" all must have the reference's bits, because a sum of two numbers has one order only;
with "fused" they are equal within rounding.
"""

import contextlib
import copy
import itertools
import random

import torch

import psring.torch as ps
from ranks import run

SEEDS, SIZE = range(48), 2
PARTS = ["norm", "tied", "conv", "table", "bfloat16", "odd"]


class Net(torch.nn.Module):
    """The sum of some parts, of which each rank may leave some out in a step."""

    def __init__(self, parts, sparse):
        super().__init__()
        layers = torch.nn
        self.last = layers.Linear(4, 2)
        if "norm" in parts:
            self.norm = layers.Sequential(layers.Linear(4, 3, bias=False), layers.BatchNorm1d(3), layers.Linear(3, 4))
        if "tied" in parts:
            self.tied = layers.Sequential(layers.Linear(4, 4), layers.Tanh(), layers.Linear(4, 4))
            self.tied[2].weight = self.tied[0].weight
        if "conv" in parts:
            self.conv = layers.Conv2d(1, 4, 2).to(memory_format=torch.channels_last)
        if "table" in parts:
            self.table = layers.Embedding(6, 4, sparse=sparse)
        if "bfloat16" in parts:
            self.narrow = layers.Linear(4, 4).bfloat16()
        if "odd" in parts:
            self.gaps = layers.Parameter(torch.randn(4, 8)[:, ::2])
            self.empty = layers.Parameter(torch.zeros(0, 4))
            self.frozen = layers.Parameter(torch.randn(4).double(), requires_grad=False)

    def forward(self, x, rows, parts):
        hidden = x
        for layer in ("norm", "tied"):
            if layer in parts:
                hidden = hidden + getattr(self, layer)(x)
        if "conv" in parts:
            hidden = hidden + self.conv(x.view(-1, 1, 2, 2)).flatten(1)
        if "table" in parts:
            hidden = hidden + self.table(rows)
        if "bfloat16" in parts:
            hidden = hidden + self.narrow(x.bfloat16()).float()
        if "odd" in parts:
            hidden = hidden + x @ self.gaps + self.empty.sum() + self.frozen.float()
        return self.last(hidden.tanh())


def draw(seed):
    """What a case is made of."""
    chance = random.Random(seed)
    fused = chance.random() < 0.35
    # The library has float32 values of a bfloat16 parameter, which torch has not.
    parts = chance.sample([part for part in PARTS if not fused or part != "bfloat16"], chance.randint(1, 4))
    sparse = "table" in parts and not fused and chance.random() < 0.5
    options = {"weight_decay": 0 if sparse else chance.choice([0, 0.1])}
    name = "SGD" if sparse else chance.choice(["SGD", "Adam", "AdamW"] + ["RMSprop", "Adagrad", "NAdam"] * (not fused))
    if name == "SGD" and not sparse:
        options.update(momentum=chance.choice([0, 0.9]), maximize=not fused and chance.random() < 0.3)
        options.update(nesterov=options["momentum"] > 0 and chance.random() < 0.5)
    if name in ("Adam", "AdamW"):
        options.update(amsgrad=not fused and chance.random() < 0.3, foreach=chance.choice([None, False]))
    settings = {"update": "fused" if fused else "local", "bucket_mb": chance.choice([25, 1e-5])}
    settings["broadcast_buffers"] = chance.random() < 0.8
    settings["find_unused"] = not fused and chance.random() < 0.4
    steps = [
        {
            "left out": [[part for part in parts if chance.random() < 0.2] for _ in range(SIZE)],
            "accumulates": chance.random() < 0.3,
            "to none": settings["find_unused"] or chance.random() < 0.7,
            "before": chance.choice(["", "", "", "state", "resume", "rate", "momentum"]),
        }
        for _ in range(chance.randint(2, 6))
    ]
    return {
        "seed": seed, "parts": parts, "sparse": sparse, "optimizer": name, "options": options, "settings": settings,
        "groups": chance.choice([1, 2]), "clips": not fused and not sparse and chance.random() < 0.4, "steps": steps,
    }  # fmt: skip


class Training:
    """Of one rank, or of all ranks in one process, where the first one's model is the optimizer's."""

    def __init__(self, case, ranks):
        self.case, self.ranks = case, ranks
        torch.manual_seed(case["seed"])
        self.models = [Net(case["parts"], case["sparse"])]
        self.models += [copy.deepcopy(self.models[0]) for _ in ranks[1:]]
        self.fused = case["settings"]["update"] == "fused"
        self.optimizer = self.made()

    def made(self):
        params, groups = list(self.models[0].parameters()), self.case["groups"]
        listed = [{"params": params[g::groups], "lr": 0.01 * (g + 1)} for g in range(groups)]
        return getattr(torch.optim, self.case["optimizer"])(listed, **self.case["options"])

    def exchange(self):
        pass

    def step(self):
        self.optimizer.step()

    def backward(self, number, batch, step):
        for rank, model in zip(self.ranks, self.models):
            torch.manual_seed(1000 * number + 10 * batch + rank)
            used = [part for part in self.case["parts"] if part not in step["left out"][rank]]
            loss = (model(torch.randn(3, 4), torch.randint(0, 6, (3,)), used) - torch.randn(3, 2)).square().mean()
            loss.backward()

    def clear(self, to_none):
        for model in self.models:
            model.zero_grad(set_to_none=to_none)

    def between(self, what):
        groups = self.optimizer.param_groups
        if what == "state":
            self.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        elif what == "resume":
            state = copy.deepcopy(self.optimizer.state_dict())
            self.close()
            self.optimizer = self.made()
            self.optimizer.load_state_dict(state)
        elif what == "rate":
            groups[0]["lr"] *= 0.5
        elif what == "momentum" and groups[0].get("momentum"):
            groups[0]["momentum"] = 0.7

    def run(self):
        for number, step in enumerate(self.case["steps"]):
            self.between(step["before"])
            self.clear(step["to none"])
            if step["accumulates"]:
                with self.no_sync():
                    self.backward(number, 0, step)
            self.backward(number, 1, step)
            self.exchange()
            if self.case["clips"]:
                torch.nn.utils.clip_grad_norm_(self.models[0].parameters(), 0.5)
            self.step()


class Distributed(Training):
    def made(self):
        return ps.DistributedOptimizer(super().made(), model=self.models[0], **self.case["settings"])

    def no_sync(self):
        return self.optimizer.no_sync()

    def close(self):
        self.optimizer.close()


class Reference(Training):
    no_sync = contextlib.nullcontext

    def close(self):
        self.share_buffers()  # as the next one does, with model=

    def share_buffers(self):
        for root, *others in zip(*(model.buffers() for model in self.models)):
            for buffer in others:
                buffer.copy_(root)

    def exchange(self):
        """p.grad of all models becomes the mean, as the optimizer's documentation says."""
        for params in zip(*(model.parameters() for model in self.models)):
            grads = [param.grad for param in params if param.grad is not None]
            unused = not grads and self.case["settings"]["find_unused"]
            if unused or not params[0].requires_grad or params[0].numel() == 0:
                continue
            total = torch.zeros_like(params[0], dtype=torch.float32)
            for grad in grads:
                total += grad.to_dense() if grad.is_sparse else grad
            for param in params:
                param.grad = (total / SIZE).to(param.dtype)
        if self.case["settings"]["broadcast_buffers"]:
            self.share_buffers()

    def step(self):
        super().step()
        for params in zip(*(model.parameters() for model in self.models)):
            for param in params[1:]:
                param.data.copy_(params[0].data)
                param.grad = None if params[0].grad is None else params[0].grad.clone()


def difference(name, mine, other, exactly):
    """Of two tensors, in words; "" where there is none."""
    if mine.dtype is other.dtype and mine.shape == other.shape:
        if torch.equal(mine, other) if exactly else torch.allclose(mine, other, rtol=1e-4, atol=1e-5):
            return ""
    return f"{name}: {mine.flatten()[:4].tolist()}, and not {other.flatten()[:4].tolist()}"


def states(optimizer):
    """{(number of the parameter, name): tensor}, but of parameters without elements, which each rank keeps."""
    numbers = itertools.count()
    sizes = {next(numbers): param.numel() for group in optimizer.param_groups for param in group["params"]}
    state = optimizer.state_dict()["state"]
    return {
        (number, name): torch.as_tensor(value)
        for number, values in state.items() for name, value in values.items() if sizes[number] and value is not None
    }  # fmt: skip


def differences(distributed, reference):
    exactly, model = not distributed.fused, reference.models[ps.rank()]
    mine, theirs = distributed.models[0].state_dict(), model.state_dict()
    found = [difference(name, mine[name], theirs[name], exactly) for name in theirs]
    mine, theirs = states(distributed.optimizer), states(reference.optimizer)
    if mine.keys() != theirs.keys():
        return found + [f"the state has {sorted(mine)}, and not {sorted(theirs)}"]
    found += [difference(f"state {key}", mine[key], theirs[key], exactly) for key in theirs]
    options = [[{**group, "params": None} for group in o.optimizer.param_groups] for o in (distributed, reference)]
    return found + ["" if options[0] == options[1] else f"param_groups are {options[0]}, and not {options[1]}"]


def all_cases():
    """What differs from the reference, by seed, and the parameters in the end."""
    ps.init()
    found, ends = {}, []
    for seed in SEEDS:
        distributed, reference = Distributed(draw(seed), [ps.rank()]), Reference(draw(seed), list(range(SIZE)))
        for training in (distributed, reference):
            training.run()
        found[seed] = [text for text in differences(distributed, reference) if text]
        ends.append([param.tolist() for param in distributed.models[0].parameters()])
        distributed.close()
    return found, ends


def test_drawn_trainings_end_as_in_one_process():
    ends = []
    for mode, env in (("ring", {}), ("ps", {"PSRING_SERVERS": "2"})):
        for found, end in run(all_cases, SIZE, mode=mode, env=env, timeout=300):
            assert {seed: told for seed, told in found.items() if told} == {}
            ends.append(end)
    assert all(end == ends[0] for end in ends)
