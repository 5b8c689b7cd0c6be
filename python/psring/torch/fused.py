"""update="fused": the exchange applies the optimizer, where the sums are made.

What torch.optim's SGD, Adam and AdamW do is told to the library as options; all
else is refused. The optimizer object in the script keeps its param_groups, whose
learning rates are sent before each step, and shows the library's state.
"""

from typing import Any, Dict, List, Sequence, Tuple

import torch

from .. import _models
from ._tensors import warn_once
from .entry import Entry
from .gradient_exchange import ModelExchange


def group_options(kind: type, group: Dict[str, Any], remedy: str) -> Dict[str, Any]:
    """One param_group as the library's optimizer options. `remedy`: for what it cannot do."""

    def refuse(what: str) -> None:
        raise ValueError(f'{what} is not supported with update="fused": {remedy}')

    for option in ("amsgrad", "maximize", "capturable", "differentiable"):
        if group.get(option):
            refuse(f"{kind.__name__}({option}=True)")
    if kind is torch.optim.SGD:
        if group.get("dampening"):
            refuse(f"SGD(dampening={group['dampening']})")
        if group["momentum"] >= 1:
            refuse(f"SGD(momentum={group['momentum']})")
        return _models.optimizer_options("sgd", group)
    if kind not in (torch.optim.Adam, torch.optim.AdamW):
        raise ValueError(f'update="fused" supports SGD, Adam and AdamW, not {kind.__name__}: {remedy}')
    if not group["eps"] > 0:
        refuse(f"{kind.__name__}(eps={group['eps']})")
    decoupled = kind is torch.optim.AdamW or group.get("decoupled_weight_decay", False)
    return _models.optimizer_options("adamw" if decoupled else "adam", group)


def all_options(kind: type, groups: Sequence[Dict[str, Any]], remedy: str) -> List[Dict[str, Any]]:
    """The options of every group. Errors: groups of different kinds."""
    options = [group_options(kind, group, remedy) for group in groups]
    for index, other in enumerate(options):
        if other["name"] != options[0]["name"]:
            raise ValueError(
                f"param_groups of different kinds ({options[0]['name']}, and {other['name']} in group {index}) are not "
                f'supported with update="fused": {remedy}'
            )
    return options


def rates_of(options: Sequence[Dict[str, Any]]) -> List[float]:
    """What may change between steps, for set_rates(): of each group lr, then of each momentum or beta1."""
    return [group["lr"] for group in options] + [group.get("momentum", group.get("beta1", 0.0)) for group in options]


def begin_with_rates(options: List[Dict[str, Any]], rates: Sequence[float]) -> None:
    """The inverse of rates_of(), where the worker's own follow by set_rates()."""
    for group, lr, momentum in zip(options, rates, rates[len(options) :]):
        group["lr"] = lr
        for name in {"momentum", "beta1"} & set(group):
            group[name] = momentum


def check_unchanged(old: List[Dict[str, Any]], new: List[Dict[str, Any]], remedy: str) -> None:
    """Raises where more than the learning rate, the momentum or beta1 differs."""
    for index, (before, after) in enumerate(zip(old, new)):
        if before["name"] != after["name"]:  # momentum to 0, say, or nesterov
            raise ValueError(
                f"param_groups[{index}]: the optimizer changed from {before['name']} to {after['name']}, which is not "
                f'supported with update="fused" after the first step: {remedy}'
            )
        for key, value in after.items():
            if key not in ("lr", "momentum", "beta1") and before.get(key) != value:
                raise ValueError(
                    f"param_groups[{index}]: {key} changed from {before.get(key)} to {value}; with update=\"fused\" "
                    f"only lr, momentum and the first of betas may change after the first step: {remedy}"
                )


def model_options(
    options: List[Dict[str, Any]], groups: Sequence[Dict[str, Any]], entries: Sequence[Entry]
) -> Dict[str, Any]:
    """`groups` and `tensor_groups` of psring_open_model, entries in backward's order."""
    group_of = {id(p): index for index, group in enumerate(groups) for p in group["params"]}
    return {
        "momenta": True,
        "groups": options,
        "tensor_groups": [group_of[id(entry.param)] for entry in reversed(entries)],
    }


# ---- Parameters in the library's memory --------------------------------------


# Of the state of a float16 or bfloat16 parameter: the float32 values that the library keeps of it.
MASTER = "master_param"


def _is_half(param: torch.Tensor) -> bool:
    return param.dtype in (torch.float16, torch.bfloat16)


def check_apart(named: List[Tuple[str, Any]], remedy: str) -> None:
    """Raises where two parameters have the same memory: fused, each gets memory of its own."""
    by_address: Dict[Any, str] = {}
    for name, param in named:
        other = by_address.setdefault((param.device, param.data_ptr()), name)
        if other != name:
            raise ValueError(
                f'{other} and {name} are two parameters in the same memory, which update="fused" would take apart: '
                f"make them one parameter, or {remedy}"
            )


def place_parameters(entries: Sequence[Entry], state: Dict[Any, Any]) -> None:
    """Before begin(): the library's memory takes the parameters' values, from their float32 values in the
    state except where a script has written something else to the parameter."""
    with torch.no_grad():
        for entry in entries:
            param, master = entry.param.detach(), state.get(entry.param, {}).get(MASTER)
            assert entry.result is not None
            if master is not None:
                master = master.to(param.device)
                param = torch.where(master.to(param.dtype) == param, master.float(), param.float())
            entry.result.copy_(param)


def take_parameters(entries: Sequence[Entry]) -> None:
    """After begin() and finish(): float32 parameters where the library's memory lies are
    views of it, and others are copied from it."""
    with torch.no_grad():
        for entry in entries:
            param, result = entry.param, entry.result
            assert result is not None
            if param.device != result.device or param.dtype != torch.float32:
                param.data.copy_(result)
            elif param.data_ptr() != result.data_ptr():
                param.data = result
            entry.taken(param)


# ---- State -------------------------------------------------------------------


def load_slots(exchange: ModelExchange, entries: Sequence[Entry], state: Dict[Any, Any]) -> List[torch.Tensor]:
    """The library's slots from torch's state of each parameter; none: [].

    `exchange.slot_names` are torch's names: momentum_buffer, or exp_avg and
    exp_avg_sq.
    """
    if not any(state.get(e.param) for e in entries):
        return []
    slots = []
    for slot_name in exchange.slot_names:
        slot = torch.zeros(exchange.results.numel(), dtype=torch.float32, device="cpu")
        for entry in entries:
            value = state.get(entry.param, {}).get(slot_name)
            if value is None:
                continue
            if value.shape != entry.param.shape:
                raise ValueError(
                    f"the optimizer's state has {slot_name} of shape {list(value.shape)} for {entry.name}, which is "
                    f"{list(entry.param.shape)}: load a state of this model, with its parameters in the same order"
                )
            exchange.part_of_slot(slot, entry).copy_(value.detach())
        slots.append(slot)
    return slots


def first_updates(entries: Sequence[Entry], state: Dict[Any, Any]) -> int:
    """Adam's count of the updates so far; 0 where there is no state."""
    return max((_updates_of(entry, state) for entry in entries), default=0)


def _updates_of(entry: Entry, state: Dict[Any, Any]) -> int:
    return int(state.get(entry.param, {}).get("step", 0))


def warn_of_counts(entries: Sequence[Entry], state: Dict[Any, Any], remedy: str) -> None:
    """The library has one count for all parameters, by which it corrects their moments."""
    counts = {_updates_of(entry, state): entry.name for entry in entries}
    if len(counts) > 1:
        (fewer, name), *_, (more, other) = sorted(counts.items())
        warn_once(
            f"the optimizer's state has {fewer} updates of {name} and {more} of {other}, as where a part is unfrozen "
            f'later: with update="fused" both count as {more}, so the first steps of {name} are up to 3 times as long '
            f"as torch's. To have each counted by itself, {remedy}"
        )


def warn_of_write(name: str) -> None:
    """A script wrote to a parameter since take_parameters()."""
    warn_once(
        f'{name} was written to after a step, but with update="fused" the values of the servers, or of the ring, '
        "count: what was written is lost, or stays on this rank alone. If it changed the values, use "
        'update="local", or call opt.load_state_dict(opt.state_dict()) after it on all workers, which starts anew '
        "from rank 0's parameters"
    )


def fetch_state(exchange: ModelExchange, entries: Sequence[Entry]) -> Dict[Any, Dict[str, Any]]:
    """torch's state of every parameter, from the library. All ranks call it."""
    slots = [torch.frombuffer(slot, dtype=torch.float32) for slot in exchange.fetch_slots()]
    counts = bool(slots) and exchange.slot_names != ["momentum_buffer"]
    updates = exchange.fetch_updates() if counts else 0
    state: Dict[Any, Dict[str, Any]] = {}
    for entry in entries:
        param, of_param = entry.param, {}  # type: torch.Tensor, Dict[str, Any]
        if slots:
            for name, slot in zip(exchange.slot_names, slots):
                of_param[name] = exchange.part_of_slot(slot, entry).to(param.device, copy=True)
            if counts:
                of_param["step"] = torch.tensor(float(updates), dtype=torch.float32, device="cpu")
        if _is_half(param):
            assert entry.result is not None
            of_param[MASTER] = entry.result.detach().to(param.device, copy=True)
        if of_param:
            state[param] = of_param
    return state


def keep_float32(optimizer: torch.optim.Optimizer, state_dict: Dict[str, Any]) -> None:
    """After load_state_dict(): torch casts the state to its parameter's dtype, and the library's is float32."""
    numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for number, param in zip(numbers, params):
        if not _is_half(param):
            continue
        for name, value in state_dict["state"].get(number, {}).items():
            if name != "step" and torch.is_tensor(value) and value.dtype == torch.float32:
                optimizer.state[param][name] = value.detach().to(param.device, copy=True)
