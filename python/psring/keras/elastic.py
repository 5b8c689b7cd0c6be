"""What a Keras script goes on from where its job is started again: Horovod's KerasState, and its callbacks.

    state = ps.elastic.KerasState(model, epoch=0, batch=0)

    @ps.elastic.run
    def train(state):
        model.fit(..., initial_epoch=state.epoch, epochs=10, callbacks=[
            ps.elastic.UpdateEpochStateCallback(state), ps.elastic.CommitStateCallback(state, batches_per_commit=100)])

    train(state)
"""

from typing import Any, Callable, Dict, List, Optional, TypeVar

import keras
import numpy as np

from .. import _elastic, _job
from .callbacks import finalize_normalizations
from .optimizer import begin_anew, synchronize

_Result = TypeVar("_Result")


def _saved(variables: List[Any]) -> List[_elastic.Saved]:
    return [(variable.path, np.asarray(keras.ops.convert_to_numpy(variable))) for variable in variables]


def _assign(variables: List[Any], saved: List[_elastic.Saved]) -> None:
    _elastic.assign(variables, [variable.path for variable in variables], saved)


class KerasState(_elastic.State):
    """Values that all ranks have alike and that outlive the job's processes, as attributes of these names.

    A model and an optimizer stay the objects that they are, and take the variables of the last commit(): weights, and the
    optimizer's step, learning rate and state. Any other value, such as a number, is replaced.

    Rank 0 keeps the last commit in the folder PSRING_STATE_DIR: that of psring run --state-dir, or a temporary one of
    psring run --max-restarts. Its file is a pickle, which can run code in whoever reads it: let nobody else
    write to the folder.

    Args:
        model: has been built.
        optimizer: of a loop of the script's own; by default the one that the model was compiled with.
    """

    _with_state = "with variables"

    def __init__(self, model: Any, optimizer: Any = None, **values: Any):
        optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        super().__init__("keras", {"model": model, **({} if optimizer is None else {"optimizer": optimizer}), **values})
        for name in self._names:
            value = getattr(self, name)
            if isinstance(value, keras.layers.Layer) and not value.built:
                raise ValueError(f"KerasState: {name} has no weights yet: give it an Input, or call its build(input_shape)")
        # Of a fit(): its parameters, and callbacks that bring this state up to date before a commit.
        self._fit: Any = None
        self._updates: List[Any] = []

    def _has_state(self, value: Any) -> bool:
        return isinstance(value, (keras.layers.Layer, keras.optimizers.Optimizer))

    def _of(self, kind: Any) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in self._names if isinstance(getattr(self, name), kind)}

    def _weights(self) -> List[Any]:
        return [weight for model in self._of(keras.layers.Layer).values() for weight in model.weights]

    def _states(self) -> Dict[str, Any]:
        models, optimizers = self._of(keras.layers.Layer), self._of(keras.optimizers.Optimizer)
        for model in models.values():
            if hasattr(model, "jax_state_sync"):  # on JAX, fit() keeps the variables' values elsewhere
                model.jax_state_sync()
        if "optimizer" in optimizers and not self.optimizer.built:
            self.optimizer.build(self.model.trainable_variables)  # as fit() does
        for optimizer in optimizers.values():
            synchronize(optimizer)
        if _job.rank() != 0:
            return {}
        states: Dict[str, Any] = {name: _saved(model.weights) for name, model in models.items()}
        places = {id(weight): place for place, weight in enumerate(self._weights())}
        for name, optimizer in optimizers.items():
            states[name] = None
            if optimizer.built:
                trains = [places.get(id(variable)) for variable in optimizer._trainable_variables]
                states[name] = {"trains": trains, "variables": _saved(optimizer.variables)}
        return states

    def _take(self, states: Dict[str, Any], values: Dict[str, Any], of_commit: bool) -> None:
        states, values = _elastic.from_rank_0((states, values))
        optimizers = self._of(keras.optimizers.Optimizer)
        for name in [*self._of(keras.layers.Layer), *optimizers]:
            try:
                if name in optimizers:
                    self._take_optimizer(optimizers[name], states[name])
                else:
                    _assign(getattr(self, name).weights, states[name])
                    finalize_normalizations(getattr(self, name))
            except ValueError as error:
                raise self._differs(name, error, of_commit) from error
        for name, value in values.items():
            setattr(self, name, value)

    def _take_optimizer(self, optimizer: Any, state: Optional[Dict[str, Any]]) -> None:
        if state is None:
            if optimizer.built:
                raise ValueError("it had no variables there, and has some here: call its build(variables) before")
            return
        if not optimizer.built:
            weights, trains = self._weights(), state["trains"]
            if any(place is None or place >= len(weights) for place in trains):
                raise ValueError("it trains variables of no model of this state: call its build(variables) before")
            optimizer.build([weights[place] for place in trains])
        _assign(list(optimizer.variables), state["variables"])
        begin_anew(optimizer)


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """A decorator of func(state, ...): it goes on from the state's last commit, or else begins with rank 0's values.

    Another call in the same process leaves the state as it is. All ranks call it. A failure ends the process as ever; it
    is psring run --max-restarts=N that starts all again.
    """
    return _elastic.begins(func, KerasState)


class _Update(keras.callbacks.Callback):
    """Keeps a value of the state up to date. Its place among the callbacks does not matter: CommitStateCallback
    calls it before a commit."""

    _of = ""  # the value's name

    def __init__(self, state: KerasState):
        super().__init__()
        if self._of not in state._names:
            raise ValueError(f"{type(self).__name__}: the state has no {self._of}: KerasState(model, {self._of}=0)")
        self._state = state

    def on_train_begin(self, logs: Any = None) -> None:
        if self._state._fit is not self.params:
            self._state._fit, self._state._updates = self.params, []
        self._state._updates.append(self)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.after_batch(batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.after_epoch(epoch)

    def after_batch(self, batch: int) -> None: ...

    def after_epoch(self, epoch: int) -> None: ...


class UpdateBatchStateCallback(_Update):
    """state.batch is the number of an epoch's batches that have been trained on, and 0 after the epoch. Where fit()
    begins with another number, that many batches have been left out of what it gets, which is the script's task."""

    _of = "batch"

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self._before = self._state.batch  # this fit()

    def after_batch(self, batch: int) -> None:
        self._state.batch = self._before + batch + 1

    def after_epoch(self, epoch: int) -> None:
        self._state.batch = self._before = 0


class UpdateEpochStateCallback(_Update):
    """state.epoch is the number of epochs that have been trained, over all starts: fit() may count its own from 0
    (epochs=10 - state.epoch) or from there (initial_epoch=state.epoch, epochs=10)."""

    _of = "epoch"

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self._before: Optional[int] = None  # the state's epoch minus that of fit()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._before is None:
            self._before = self._state.epoch - epoch

    def after_epoch(self, epoch: int) -> None:
        self._state.epoch = (self._before or 0) + epoch + 1


class CommitStateCallback(keras.callbacks.Callback):
    """Calls state.commit() after every `batches_per_commit` batches and at the end of an epoch. (Not after an epoch's last
    batch, where fit() knows it: the end of the epoch follows.)"""

    def __init__(self, state: KerasState, batches_per_commit: int = 1):
        super().__init__()
        self._state, self._every = state, batches_per_commit
        self._committed = 0  # so many of the epoch's batches

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._committed = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch + 1 - self._committed < self._every or batch + 1 == self.params.get("steps"):
            return
        self._committed = batch + 1
        for update in self._updates():
            update.after_batch(batch)
        self._state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        for update in self._updates():
            update.after_epoch(epoch)
        self._state.commit()

    def _updates(self) -> List[Any]:
        return self._state._updates if self._state._fit is self.params else []


__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
