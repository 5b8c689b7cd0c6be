"""Callbacks for model.fit, and weights that become rank 0's."""

import warnings
from typing import Any, List

import keras
import numpy as np

from .. import _job, _lib
from .._host_arrays import broadcast_numpy, reduce_numpy
from ..collectives import Average, Max, agree, auto_name
from ..process_sets import global_process_set
from .optimizer import is_distributed, refuse_in_a_model, take_state


def broadcast_weights(model: Any, root_rank: int = 0) -> None:
    """Makes the weights of a model, or the variables of an optimizer, the root's."""
    _broadcast(model.weights if hasattr(model, "weights") else model.variables, root_rank)


def _optimizers(model: Any) -> List[Any]:
    """Of a model that has one, or several of its own, as a GAN does, also in a list or a dict."""
    held = [getattr(model, "optimizer", None)]
    for own in list(vars(model).values()):
        held += own.values() if isinstance(own, dict) else own if isinstance(own, (list, tuple)) else [own]
    return list({id(of): of for of in held if isinstance(of, keras.optimizers.Optimizer)}.values())


def _broadcast(variables: List[Any], root_rank: int) -> None:
    values = [np.asarray(keras.ops.convert_to_numpy(variable)) for variable in variables]
    name = auto_name("broadcast_weights")
    agree([f"variable {i}, {value.dtype}{list(value.shape)}" for i, value in enumerate(values)], name + ".variables")
    for variable, value in zip(variables, broadcast_numpy(values, root_rank, name)):
        variable.assign(value)


def finalize_normalizations(model: Any) -> None:
    """After a model's weights have been written: such a layer computes with what it makes of its weights then."""
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Normalization) and layer.built and layer.input_mean is None:
            layer.finalize_state()


class BroadcastCallback(keras.callbacks.Callback):
    """When training begins, everybody's weights become the root's, and so does the state of the
    optimizer (its step, momentums), as where the root alone has loaded them.

    A model without an Input has no weights yet where Keras's trainer (TensorFlow's) builds it in the
    first batch: then they become the root's after that batch. Each model that it is given to has its turn.
    """

    def __init__(self, root_rank: int = 0):
        super().__init__()
        self._root_rank, self._done, self._of = root_rank, False, None

    def on_train_begin(self, logs: Any = None) -> None:
        if self._of is not self.model:
            self._of, self._done = self.model, False
            # Traced before its optimizer became DistributedOptimizer's, it would exchange nothing.
            self.model.make_train_function(force=True)
        optimizers = _optimizers(self.model)
        if _job.size() > 1 and optimizers and not any(map(is_distributed, optimizers)):
            warnings.warn(
                f"rank {_job.rank()}: the model's optimizer, {type(optimizers[0]).__name__}, is not DistributedOptimizer's, "
                "so each rank trains by itself. Models of keras.saving.load_model() have a plain one: "
                "model.optimizer = psring.keras.DistributedOptimizer(model.optimizer)",
                stacklevel=2,
            )
        refuse_in_a_model(self.model)
        self._broadcast_once()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._broadcast_once()

    def _broadcast_once(self) -> None:
        if self._done or not self.model.built:
            return
        broadcast_weights(self.model, self._root_rank)
        finalize_normalizations(self.model)
        self._done = True
        for optimizer in _optimizers(self.model):
            if is_distributed(optimizer):
                self._broadcast_state(optimizer)

    def _broadcast_state(self, optimizer: Any) -> None:
        # One that has been loaded is built, maybe on the root alone, and maybe of a part of the model's variables.
        places = {id(variable): i + 1 for i, variable in enumerate(optimizer._trainable_variables if optimizer.built else [])}
        weights = self.model.weights
        mine = np.array([optimizer.built, *(places.get(id(variable), 0) for variable in weights)], np.float64)
        [built] = reduce_numpy([mine], Max, "keras.built", global_process_set)
        if built[0] > 0:
            if not optimizer.built:
                ordered = sorted((place, i) for i, place in enumerate(built[1:]) if place > 0)
                optimizer.build([weights[i] for _, i in ordered] or self.model.trainable_variables)
            _broadcast(list(optimizer.variables), self._root_rank)
            take_state(optimizer)


def _array(metric: Any) -> np.ndarray:
    array = np.asarray(keras.ops.convert_to_numpy(metric) if keras.ops.is_tensor(metric) else metric)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


class MetricAverageCallback(keras.callbacks.Callback):
    """At the end of an epoch, metrics become their mean over all ranks. It goes
    before callbacks that read them."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not logs:
            return
        # A metric may be an array, such as an F1Score with average=None.
        values = {name: _array(logs[name]) for name in sorted(logs)}
        values = {name: value for name, value in values.items() if value.dtype.kind in "biuf"}
        names = [name + str(list(value.shape) or "") for name, value in values.items()]
        try:
            agree(names, "keras.metrics.names")
        except _lib.InvalidArgumentError as error:
            raise type(error)(
                f"{error}. MetricAverageCallback averages the metrics of all ranks, which all have the same: give all "
                "validation data, or none"
            ) from None
        means = reduce_numpy(
            [value.astype(np.float64) for value in values.values()], Average, "keras.metrics", global_process_set
        )
        for (name, value), mean in zip(values.items(), means):
            logs[name] = mean.astype(value.dtype if value.dtype.kind == "f" else np.float64) if mean.ndim else float(mean)


class LearningRateWarmupCallback(keras.callbacks.Callback):
    """The rate climbs linearly from `initial_lr` / size() to `initial_lr`, which is
    meant to be the rate for all ranks together, over `warmup_epochs` (Goyal et al.
    2017), and is not touched after that. Where Keras does not know how many steps an epoch has, as with a
    generator, the rate stays as it is during the first epoch, which counts them."""

    def __init__(self, initial_lr: float, warmup_epochs: float = 5.0):
        super().__init__()
        self._target, self._epochs = initial_lr, warmup_epochs
        self._epoch = 0
        self._batches = 0  # of this epoch so far
        self._steps = 0  # of the last epoch; 0: there was none
        self._part = 1.0  # of the warm-up, of what this fit() makes of it

    def on_train_begin(self, logs: Any = None) -> None:
        self._part = 1.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        steps = self.params.get("steps") or self._steps
        done = self._epoch + (min((batch + 1) / steps, 1.0) if steps else 0.0)
        if self._epoch < self._epochs:
            self._part = min(done / self._epochs, 1.0)
        elif self._part < 1:  # as where an epoch's steps were not known
            self._part = 1.0
        else:
            return  # the rate is somebody else's now
        first = self._target / _job.size()
        self.model.optimizer.learning_rate = first + (self._target - first) * self._part

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._batches = batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._steps = self._batches
