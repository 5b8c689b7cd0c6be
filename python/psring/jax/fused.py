"""FusedOptimizer: the servers or the ring apply the optimizer to a pytree."""

import threading
from typing import Any, Dict, List, Optional, Tuple

import jax
import numpy as np

from .. import _failure, _job, _metrics, _models
from .. import collectives as memory
from .._fused import FusedArrays
from .._models import number as _number
from .._packs import Packs
from ._arrays import call_on_host, empty, on_host, to_jax, traced


def _options(name: str, lr: Any, given: Dict[str, Any]) -> Dict[str, Any]:
    """The optimizer as the library takes it."""
    here = f"rank {_job.rank()}: FusedOptimizer"
    known = _models.HYPERPARAMETERS.get(name) if isinstance(name, str) else None
    if known is None:
        raise ValueError(f'{here}: there is no optimizer {name!r}: use "sgd", "adam" or "adamw"')
    for key in given:
        if key not in known:
            raise TypeError(f'{here}: "{name}" has no {key!r}: it has lr, {", ".join(known)}')
    values = {"lr": lr, **known, **given}
    for key in values.keys() & {"lr", "weight_decay", "momentum", "eps"}:
        limits = (1.0,) if key == "momentum" else ()
        values[key] = _number(f"FusedOptimizer: {key}", values[key], *limits)
    if "betas" in values:
        try:
            beta1, beta2 = values["betas"]
        except (TypeError, ValueError):
            raise TypeError(f"{here}: betas={values['betas']!r}: pass two numbers, as in betas=(0.9, 0.999)") from None
        values["betas"] = [_number(f"FusedOptimizer: betas[{i}]", beta, 1.0) for i, beta in enumerate((beta1, beta2))]
    if values.get("nesterov") and not values["momentum"]:
        raise ValueError(f"{here}: nesterov=True needs a momentum: pass momentum=0.9, say")
    return _models.optimizer_options(name, values)


def _named(tree: Any) -> List[Tuple[str, Any]]:
    """The leaves of a pytree with their names: "['layers'][0]"."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path) or "the array", leaf) for path, leaf in leaves]


def _describe(leaf: Any) -> str:
    return f"{jax.numpy.result_type(leaf)}{list(jax.numpy.shape(leaf))}"


class FusedOptimizer:
    """An optimizer of a pytree that the servers (mode ps) or the ring's ranks run.

    All ranks make it, with the same arguments, outside of jit. It begins with rank
    0's parameters, which parameters() returns. step() works outside of jit and
    inside; one step is in progress at a time. The ranks' gradients are averaged;
    in ssp and async, each is applied in full when it comes.

    Args:
        params: a pytree of float32 arrays.
        optimizer: "sgd", "adam" or "adamw".
        lr: the learning rate of every step that is given none.
        sync, staleness: in mode ps, "bsp", "ssp:K" or "async".
        compress: "none", "fp16", "bf16", "int8", "onebit", "topk:F".
        bucket_mb: the size of the buckets in which gradients leave; 25. The last ones of
            a step may be smaller.
        state: what state() has returned, to continue from there; rank 0's is taken.
        hyperparameters: of "sgd": momentum, nesterov, weight_decay; of "adam" and
            "adamw": betas, eps, weight_decay. Defaults are those of torch.optim.

    Errors: names, shapes or settings that differ between ranks, with both ranks and
    the first difference.
    """

    @_failure.checks_arguments
    def __init__(
        self,
        params: Any,
        optimizer: str,
        lr: float = 1e-3,
        *,
        sync: Optional[str] = None,
        staleness: Optional[int] = None,
        compress: Optional[str] = None,
        bucket_mb: Optional[float] = None,
        state: Optional[Dict[str, Any]] = None,
        **hyperparameters: Any,
    ):
        job = _job.current()
        if job.mode == "ddp":
            raise ValueError(f'rank {job.rank}: FusedOptimizer is not possible in mode "ddp": use mode "ring" or "ps"')
        if state is not None and not isinstance(state, dict):
            raise TypeError(f"rank {job.rank}: FusedOptimizer: state={state!r}: pass what state() has returned")
        group = _options(optimizer, lr, hyperparameters)
        self._lr = group["lr"]
        sync, staleness = _models.choose_sync(job, sync, staleness)
        options = _models.model_options(
            "fused", sync, staleness, _models.choose_compress(job, compress), _models.choose_bucket_mb(job, bucket_mb)
        )
        self._structure = jax.tree_util.tree_structure(params)
        arrays = self._check_parameters(params)
        self.name = _models.next_name()
        settings = ", ".join(f"{key}={value}" for key, value in {**options, **group}.items())
        memory.agree(
            [f"settings of FusedOptimizer: {settings}"]
            + [f"tensor {i}, {name} {_describe(array)}" for i, (name, array) in enumerate(arrays)],
            self.name + ".names",
        )
        self._lock = threading.Lock()
        self._in_jit = False
        step = memory.broadcast_json(int(state.get("step", 0)) if state else 0, name=self.name + ".step")
        self._arrays = FusedArrays(self.name, arrays, {**options, "groups": [group], "updates": step})
        self._arrays.begin(self._slots_of(state) if state and job.rank == 0 else [])
        _metrics.tell_model(sum(array.size for _, array in arrays), self._arrays.crc)

    def _check_parameters(self, params: Any) -> List[Tuple[str, np.ndarray]]:
        here = f"rank {_job.rank()}: FusedOptimizer"
        named = _named(params)
        if traced([leaf for _, leaf in named]):
            raise TypeError(f"{here} cannot be made inside jit: make it before, and call its step() inside")
        for name, leaf in named:
            if isinstance(leaf, (int, float, np.ndarray, np.generic)):
                leaf = jax.numpy.asarray(leaf)
            dtype = getattr(leaf, "dtype", f"a {type(leaf).__name__}")
            if dtype != np.float32:
                raise TypeError(
                    f"{here}: {name} is {dtype}; parameters are float32: convert it with .astype(jnp.float32), "
                    "or keep what is not trained out of the parameters"
                )
        arrays = [(name, on_host(jax.numpy.asarray(leaf))) for name, leaf in named]
        if not any(array.size for _, array in arrays):
            raise ValueError(f"{here}: the pytree has no parameters: pass those of the model")
        return arrays

    # ---- Steps ---------------------------------------------------------------

    def step(self, grads: Any, lr: Any = None) -> Any:
        """The parameters after a step with everybody's gradients.

        Args:
            grads: this rank's, a pytree like the parameters.
            lr: of this step; else that of the constructor. The same on all ranks.
        """
        self._alive()
        leaves = self._check_gradients(grads)
        if traced([*leaves, lr]):
            self._in_jit = True
            out = self._step_in_jit(leaves, lr)
        else:
            self._wait_for_jit()
            out = [to_jax(array) for array in self._step(leaves, lr)]
        return jax.tree_util.tree_unflatten(self._structure, out)

    def _step_in_jit(self, leaves: List[Any], lr: Any) -> List[Any]:
        packs = Packs([("float32", place.shape) for place in self._arrays.parameters])
        packed = packs.pack(leaves, jax.numpy)

        def call(arrays: List[Any]) -> List[np.ndarray]:
            gradients = packs.unpack([on_host(array) for array in arrays[: len(packed)]], np)
            return packs.pack(self._step(gradients, lr if len(arrays) == len(packed) else arrays[-1]), np)

        rate = [lr] if isinstance(lr, jax.core.Tracer) else []
        return packs.unpack(call_on_host(call, [*packed, *rate], packed, in_jit=True), jax.numpy)

    def _step(self, arrays: List[Any], lr: Any) -> List[np.ndarray]:
        """On the host: gradients leave bucket by bucket, and parameters come back."""
        rate = self._lr if lr is None else _number("step(): lr", lr)
        with self._lock:
            self._alive()
            _metrics.count_step()
            self._arrays.step(arrays, [rate])
            return self._copies()

    def _check_gradients(self, grads: Any) -> List[Any]:
        leaves, structure = jax.tree_util.tree_flatten(grads)
        here = f"rank {_job.rank()}: step()"
        remedy = "pass what jax.grad returns for these parameters"
        if structure != self._structure:
            ours = dict(_named(jax.tree_util.tree_unflatten(self._structure, self._arrays.parameters)))
            theirs = dict(_named(grads))
            lacking = next((f"{name} is missing" for name in ours if name not in theirs), None)
            excess = next((f"{name} is no parameter" for name in theirs if name not in ours), None)
            what = lacking or excess or f"{structure} instead of {self._structure}"
            raise ValueError(f"{here}: the gradients' pytree differs from the parameters': {what}; {remedy}")
        for index, (leaf, place) in enumerate(zip(leaves, self._arrays.parameters)):
            if jax.numpy.shape(leaf) != place.shape or jax.numpy.result_type(leaf) != np.float32:
                name = _named(grads)[index][0]
                raise ValueError(
                    f"{here}: the gradient of {name} is {_describe(leaf)}, its parameter {_describe(place)}; {remedy}"
                )
        return leaves

    # ---- State ---------------------------------------------------------------

    def state(self) -> Dict[str, Any]:
        """The optimizer's state, for a checkpoint: "step", the number of updates so far
        (in ssp and async each worker's step is one), and under torch's name of each slot (momentum_buffer; exp_avg, exp_avg_sq) a
        pytree like the parameters.

        All ranks call it, between steps and outside of jit, even if only one saves it.
        """
        self._wait_for_jit()
        with self._lock:
            model = self._alive()
            slots = self._arrays.fetch_slots()
            step = model.fetch_updates() if slots else model.updates()
        return {
            "step": step,
            **{name: jax.tree_util.tree_unflatten(self._structure, leaves) for name, leaves in slots.items()},
        }

    def _slots_of(self, state: Dict[str, Any]) -> List[np.ndarray]:
        """Flat memory for the library, from what state() has returned."""
        model = self._alive()
        here = f"rank {_job.rank()}: FusedOptimizer: state"
        if set(state) != {"step", *model.slot_names}:
            raise ValueError(f"{here} has {sorted(state)}: of this optimizer it has {['step', *model.slot_names]}")
        slots = []
        for name in model.slot_names:
            leaves, structure = jax.tree_util.tree_flatten(state[name])
            shapes = [np.shape(leaf) for leaf in leaves]
            if structure != self._structure or shapes != [p.shape for p in self._arrays.parameters]:
                raise ValueError(f"{here}: {name} is no pytree like the parameters: pass what state() returned for them")
            slots.append(self._arrays.flat(leaves))
        return slots

    # ---- Parameters ----------------------------------------------------------

    def parameters(self) -> Any:
        """The parameters after the last step; outside of jit."""
        self._wait_for_jit()
        with self._lock:
            self._alive()
            arrays = self._copies()
        return jax.tree_util.tree_unflatten(self._structure, [to_jax(array) for array in arrays])

    def synchronize_parameters(self) -> Any:
        """The same parameters on all ranks, with every gradient in them.

        All ranks call it, between steps and outside of jit: before an evaluation or a
        checkpoint with sync="ssp" or "async". In other ways they are the same already.
        """
        self._wait_for_jit()
        with self._lock:
            self._alive().synchronise()
        return self.parameters()

    def close(self) -> None:
        """All ranks close it, outside of jit; its state is gone. The end of the job
        does so, too."""
        self._wait_for_jit()
        with self._lock:
            self._arrays.close()

    def _copies(self) -> List[np.ndarray]:
        """JAX's arrays never change, and the library's memory does at every step."""
        copies = []
        for place in self._arrays.parameters:
            copies.append(empty(place.shape, np.float32))
            copies[-1][...] = place
        return copies

    def _wait_for_jit(self) -> None:
        """JAX returns from a jitted function before its callbacks have run."""
        if self._in_jit:
            jax.effects_barrier()

    def _alive(self) -> _models.Model:
        if self._arrays.model is None:
            raise RuntimeError(
                "this FusedOptimizer is closed: make a new one with the parameters. A function that jit has compiled with "
                "this one keeps it: compile that anew, too"
            )
        return self._arrays.model
