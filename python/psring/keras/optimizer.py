"""DistributedOptimizer: an optimizer of Keras's whose gradients are everybody's."""

import functools
from typing import Any, Dict, List, Optional, Tuple

import keras
import numpy as np

from .. import _failure, _job, _lib, _metrics, _models, _settings
from .. import collectives as memory
from .._host_arrays import crc32, reduce_numpy
from .._packs import Comparison, Packs
from ..collectives import Average, ReduceOp, Sum, lasting_name
from ..process_sets import ProcessSet, global_process_set
from .fused import Fused
from .on_host import NO_XLA, in_order, kind_of, packing_ops, supported_backend


def _rates_of(optimizer: Any, variables: List[Any]) -> Any:
    """The learning rate, as a tensor: of a MultiOptimizer, those of its optimizers."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # a LossScaleOptimizer's
    kind: Any = getattr(keras.optimizers, "MultiOptimizer", ())
    if not isinstance(inner, kind):
        return keras.ops.convert_to_tensor(optimizer.learning_rate, dtype="float32")
    if not optimizer.built:
        optimizer.build(variables)  # may choose an optimizer by each variable
    rates = [keras.ops.convert_to_tensor(of.learning_rate, dtype="float32") for of in inner.optimizers]
    return keras.ops.concatenate([keras.ops.reshape(rate, (1,)) for rate in rates])


def _compare(rates: Any, comparison: Comparison, name: str, process_set: ProcessSet) -> None:
    """Raises on a rank with a learning rate that is another one than the mean of those that have data, and where
    the ranks' gradients are not of the same shapes."""
    rates, known = np.ravel(rates), len(comparison.numbers)
    [sums] = reduce_numpy([np.array([*comparison.numbers, *rates])], Sum, name + ".rate", process_set)
    comparison.check(sums[:known], name, process_set)
    for rate, mean in zip(rates, sums[known:] / sums[0]):
        if abs(mean - rate) > 1e-6 * max(abs(mean), abs(rate)):
            raise _lib.InvalidArgumentError(
                f"rank {_job.rank()}: the learning rate is {rate:g} here, and {mean:g} in the mean of all ranks, which "
                "would part their weights: all change it alike (MetricAverageCallback goes before ReduceLROnPlateau; a "
                "schedule counts the same steps everywhere)"
            )


def _reduce(grads: List[Any], rates: Any, op: ReduceOp, name: str, process_set: ProcessSet) -> List[Any]:
    """Reduces what is not None, compares the ranks' rates, and counts a step, wherever the backend's program
    comes to it."""
    backend = supported_backend()
    present = [i for i, grad in enumerate(grads) if grad is not None]
    values = [grads[i] for i in present]
    if backend == "tensorflow":
        import tensorflow as tf

        values = [tf.convert_to_tensor(value) for value in values]
    packs = Packs([kind_of(value) for value in values])
    comparison = Comparison(packs)
    values = packs.pack(values, packing_ops())
    if backend == "torch":
        from ..torch import grouped_allreduce

        _metrics.count_step()
        _compare(keras.ops.convert_to_numpy(rates), comparison, name, process_set)
        reduced = grouped_allreduce(values, op=op, name=name, process_set=process_set)
    elif backend == "jax":
        from ..jax._arrays import call_on_host
        from ..jax.collectives import reduce_all

        def call_with_jax(arrays: List[Any]) -> List[np.ndarray]:
            _metrics.count_step()
            _compare(arrays[-1], comparison, name, process_set)
            return reduce_all(arrays[:-1], op, name, process_set)

        reduced = call_on_host(call_with_jax, [*values, rates], values)
    else:

        def call(arrays: List[np.ndarray]) -> List[np.ndarray]:
            _metrics.count_step()
            _compare(arrays[-1], comparison, name, process_set)
            return reduce_numpy(arrays[:-1], op, name, process_set)

        reduced = in_order(call, [*values, rates], values)
    out = list(grads)
    for i, value in zip(present, packs.unpack(reduced, packing_ops())):
        out[i] = value
    return out


def _crc(variables: List[Any]) -> int:
    return crc32(keras.ops.convert_to_numpy(variable) for variable in variables)


class Local:
    """psring's part of an optimizer that Keras applies; the optimizer owns it."""

    def __init__(self, op: ReduceOp, process_set: ProcessSet):
        self._op, self._process_set = op, process_set
        self._name = lasting_name("keras.gradients", process_set)
        self._told = False

    def reduce(self, optimizer: Any, grads: List[Any], variables: Optional[List[Any]]) -> List[Any]:
        known = list(optimizer._trainable_variables if variables is None else variables)
        if not self._told:
            self._told = True
            size = sum(int(np.prod(variable.shape)) for variable in known)
            _metrics.tell_model(size, functools.partial(_crc, known), optimizer)
        if keras.backend.backend() == "torch":
            # Other ranks may have used other layers; under a compiler all have the same program.
            grads = [keras.ops.zeros_like(of) if grad is None else grad for grad, of in zip(grads, known)]
        return _reduce(grads, _rates_of(optimizer, known), self._op, self._name, self._process_set)


class _Distributed:
    """What DistributedOptimizer adds to the class of an optimizer."""

    @classmethod
    def from_config(cls, *args: Any, **kwargs: Any) -> Any:
        """One that exchanges nothing: DistributedOptimizer() has made this class of another."""
        return cls.__mro__[cls.__mro__.index(_Distributed) + 1].from_config(*args, **kwargs)  # type: ignore[attr-defined]

    def synchronize_parameters(self) -> None:
        """Makes all ranks' variables the same, with every gradient in them.

        All ranks call it, between steps: before an evaluation or a checkpoint with
        sync="ssp" or "async". In other ways they are the same already. It is about what the
        optimizer trains: moving averages of BatchNormalization stay each rank's own, until
        broadcast_weights(model).
        """

    def synchronize_state(self) -> None:
        """Makes the optimizer's slot variables (momentums, velocities) hold the library's state, so
        that model.save() or model.save_weights() of rank 0 keeps it.

        All ranks call it, between steps. With update="local" Keras holds the state, and there is
        nothing to do.
        """

    def close(self) -> None:
        """Frees psring's memory for it. The variables keep their values, and it makes no more steps.

        All ranks call it, between steps, when they no longer need the optimizer, as after each of
        several models. With update="local" there is nothing to free.
        """


def is_distributed(optimizer: Any) -> bool:
    """Whether DistributedOptimizer has returned it, or what it scales the loss for, or all that a MultiOptimizer has."""
    if isinstance(optimizer, _Distributed):
        return True
    inner = getattr(optimizer, "optimizers", None) or [getattr(optimizer, "inner_optimizer", None)]
    return all(of is not None and is_distributed(of) for of in inner)


def _scales_by_itself(optimizer: Any) -> bool:
    """Whether a LossScaleOptimizer is around one of DistributedOptimizer's."""
    if isinstance(optimizer, _Distributed):
        return False
    return hasattr(optimizer, "inner_optimizer") or any(map(_scales_by_itself, getattr(optimizer, "optimizers", ())))


def take_state(optimizer: Any) -> None:
    """Something has written to the variables of DistributedOptimizer's optimizer."""
    if isinstance(optimizer, _Fused):
        optimizer._psring.take_state(optimizer)  # type: ignore[attr-defined]
    for inner in getattr(optimizer, "optimizers", ()):
        take_state(inner)


def begin_anew(optimizer: Any) -> None:
    """As take_state(), also after the first step, and of the variables that it trains. All ranks call it, between steps."""
    if isinstance(optimizer, _Fused):
        optimizer._psring.begin_anew(optimizer)  # type: ignore[attr-defined]
    for inner in getattr(optimizer, "optimizers", ()):
        begin_anew(inner)


def synchronize(optimizer: Any) -> None:
    """synchronize_parameters() and synchronize_state() of what DistributedOptimizer has returned."""
    if isinstance(optimizer, _Distributed):
        optimizer.synchronize_parameters()
        optimizer.synchronize_state()
    for inner in getattr(optimizer, "optimizers", ()):
        synchronize(inner)


def refuse_in_a_model(model: Any) -> None:
    """What DistributedOptimizer() cannot see: how the model was compiled."""
    optimizer = getattr(model, "optimizer", None)
    here = f"rank {_job.rank()}: psring.keras"
    if optimizer is None or not is_distributed(optimizer):
        return
    if _job.size() > 1 and _scales_by_itself(optimizer):
        raise ValueError(
            f"{here}: the optimizer is a LossScaleOptimizer of DistributedOptimizer's, so each rank scales its loss "
            "and skips steps by itself: DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer)), or set "
            "the dtype policy before DistributedOptimizer()"
        )
    if keras.backend.backend() == "tensorflow" and model.jit_compile:
        raise ValueError(f"rank {_job.rank()}: {NO_XLA}")
    synchronized = [
        layer.name
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization) and layer.synchronized
    ]
    if _job.size() > 1 and synchronized:
        raise ValueError(
            f"{here}: {synchronized[0]} is BatchNormalization(synchronized=True), which does not synchronize over "
            "psring's ranks: use psring.keras.SyncBatchNormalization"
        )


class _Local(_Distributed):
    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        variables = None if trainable_variables is None else list(trainable_variables)
        grads = self._psring.reduce(self, list(grads), variables)  # type: ignore[attr-defined]
        return super().apply(grads, variables)  # type: ignore[misc]


class _Fused(_Distributed):
    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        grads = list(grads)
        if grads:
            self._psring.apply(self, grads, trainable_variables)  # type: ignore[attr-defined]

    def synchronize_parameters(self) -> None:
        self._psring.synchronize(self)  # type: ignore[attr-defined]

    synchronize_parameters.__doc__ = _Distributed.synchronize_parameters.__doc__

    def synchronize_state(self) -> None:
        self._psring.synchronize_state(self)  # type: ignore[attr-defined]

    synchronize_state.__doc__ = _Distributed.synchronize_state.__doc__

    def save_own_variables(self, store: Any) -> None:
        self._psring.warn_of_save()  # type: ignore[attr-defined]
        super().save_own_variables(store)  # type: ignore[misc]

    def load_own_variables(self, store: Any) -> None:
        super().load_own_variables(store)  # type: ignore[misc]
        self._psring.take_loaded(self)  # type: ignore[attr-defined]

    def set_weights(self, weights: Any) -> None:
        super().set_weights(weights)  # type: ignore[misc]
        self._psring.take_loaded(self)  # type: ignore[attr-defined]

    def close(self) -> None:
        self._psring.close()  # type: ignore[attr-defined]

    close.__doc__ = _Distributed.close.__doc__


def _chosen(
    job: _job.Job, op: ReduceOp, process_set: ProcessSet, update: Optional[str], sync: Optional[str],
    staleness: Optional[int], compress: Optional[str], bucket_mb: Optional[float],
) -> Tuple[bool, Dict[str, Any]]:  # fmt: skip
    """Whether the update is fused, and what psring_open_model is told then. Arguments come first,
    then init()'s or the environment's, then defaults. Errors: what is not possible."""
    here = f"rank {job.rank}: psring.keras.DistributedOptimizer"
    memory.op_code(op)
    if op not in (Average, Sum):
        raise ValueError(f"DistributedOptimizer(op={op.name}): it is Average or Sum")
    if job.mode == "ddp":
        raise ValueError(f'{here} works over psring\'s own transport: mode="ddp" is not possible: use "ring" or "ps"')
    sync, staleness = _models.choose_sync(job, sync, staleness)
    update = _models.choose_update(job, update, sync)
    compress = _models.choose_compress(job, compress)
    if update == "local":
        remedy = 'use compress="none", or update="fused"'
        if compress != "none":
            raise ValueError(f'{here} with update="local" averages gradients as they are: compress="{compress}" '
                             f"(PSRING_COMPRESS) is not possible: {remedy}")  # fmt: skip
        if bucket_mb is not None:
            raise ValueError(f'{here}: bucket_mb={bucket_mb:g} needs update="fused": gradients go in no buckets')
        return False, {}
    if process_set is not global_process_set and process_set.size() < job.size:
        raise ValueError(f'{here}: update="fused" is not possible over a process set: use update="local"')
    if op is Sum:
        raise ValueError(
            f'{here}: op=Sum is not supported with update="fused": multiply the learning rate by size()'
        )
    return True, _models.model_options(update, sync, staleness, compress, _models.choose_bucket_mb(job, bucket_mb))


def _refuse_scales_of_one_rank(job: _job.Job, optimizer: Any, fused: bool) -> None:
    """Keras wraps an optimizer into a LossScaleOptimizer for mixed_float16, which calls its apply()
    only where this rank's gradients are finite. A LossScaleOptimizer that is itself given to
    DistributedOptimizer looks at everybody's gradients; on JAX it does not call apply()."""
    on_jax = keras.backend.backend() == "jax"
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        if not on_jax or fused:  # a fused update refuses it by name
            return
        what = "a LossScaleOptimizer on JAX exchanges no gradients"
    elif keras.config.dtype_policy().name == "mixed_float16":
        what = "with the dtype policy mixed_float16 each rank scales its loss and skips steps by itself"
    else:
        return
    remedy = "use the policy mixed_bfloat16"
    if not on_jax and not fused:
        remedy += ", or DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))"
    raise ValueError(f"rank {job.rank}: psring.keras.DistributedOptimizer: {what}: {remedy}")


@_failure.checks_arguments
def DistributedOptimizer(
    optimizer: Any,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    *,
    update: Optional[str] = None,
    sync: Optional[str] = None,
    staleness: Optional[int] = None,
    compress: Optional[str] = None,
    bucket_mb: Optional[float] = None,
) -> Any:
    """Makes an optimizer of Keras's apply everybody's gradients, and returns it: it is the same
    object, with its state.

    With update="local" all ranks' gradients are averaged before each step, which Keras applies:
    any optimizer works. With "fused" gradients go to the servers (mode ps) or to the ring, which
    apply SGD (momentum, nesterov; weight_decay without momentum), Adam or AdamW with Keras's formulas,
    and the variables take the new parameters. Learning rates, of a schedule or of a callback,
    are read at every step and go with the gradients; `iterations` counts this rank's steps. The
    first step takes rank 0's variables on every rank: with BroadcastCallback its gradients are
    of these variables, too. What a script writes to trainable variables after the first step
    is lost.

    With "fused" the state (momentums, velocities) is the library's, and ends with the job. Before
    rank 0 saves the model, all ranks call optimizer.synchronize_state(), which brings it into the
    optimizer's own slot variables, and in ssp and async synchronize_parameters(). An optimizer
    that was loaded goes on from its slot variables, rank 0's, in the first step.

    Args:
        op: Average, or Sum.
        process_set: the ranks among which gradients are reduced, with update="local".
        update: "local", the default where steps are synchronous, or "fused", the default and the
            only way with ssp and async.
        sync, staleness: in mode ps, "bsp", "ssp:K" or "async".
        compress: with update="fused": "none", "fp16", "bf16", "int8", "onebit", "topk:F".
        bucket_mb: with update="fused": the size of the buckets in which gradients leave; 25.

    Errors: optimizers and options of theirs that a fused update does not have; in the first step
    variables or settings that differ between ranks, with both ranks and the first difference.
    """
    job = _job.current()
    if isinstance(optimizer, _Distributed) or any(map(is_distributed, getattr(optimizer, "optimizers", ()))):
        raise ValueError("this optimizer is a DistributedOptimizer already")
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            f"rank {job.rank}: DistributedOptimizer({optimizer!r}): pass one of keras.optimizers, as in "
            "DistributedOptimizer(keras.optimizers.Adam(1e-3))"
        )
    fused, options = _chosen(job, op, process_set, update, sync, staleness, compress, bucket_mb)
    _refuse_scales_of_one_rank(job, optimizer, fused)
    kind = type(optimizer)
    together = _settings.takes_steps_together(options.get("sync"))
    optimizer._psring = Fused(optimizer, options, together) if fused else Local(op, process_set)
    # model.save() writes both names: it is loaded as the optimizer that it was.
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    optimizer.__class__ = type(kind.__name__, (_Fused if fused else _Local, kind), names)
    return optimizer
