"""update="fused": the servers or the ring apply what Keras's SGD or Adam would.

The library's formulas are torch's (common/optim/optimizer.h). Keras's differ in three places,
and are made of them so:

- With a momentum m Keras adds rates into its velocity: v = m*v - lr*g; p += v. The library's
  buffer is b = m*b + g; p -= lr*b. With gradients multiplied by lr/r and the constant rate r
  it is b = -v/r, whatever lr does. (r is the first step's rate: of a constant one the
  gradients stay as they are. Of a schedule, which may begin with any, r is 1.)
- Keras's Adam adds epsilon before the bias is corrected, torch's after it: `epsilon_hat`.
- Keras's weight_decay is p -= lr*weight_decay*p for every optimizer. Of SGD without momentum
  that is the library's g += weight_decay*p, and of Adam its "adamw"; with a momentum the
  library has no such formula.
"""

import itertools
import threading
import warnings
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional, Tuple

import keras
import numpy as np

from .. import _job, _lib, _metrics, _models
from .. import collectives as memory
from .._fused import FusedArrays
from .._host_arrays import broadcast_numpy
from .._packs import Packs
from .on_host import await_host_calls, kind_of, on_host, packing_ops, values_now

# Hyperparameters of Keras's optimizers that the library cannot follow.
_REFUSED = (
    "clipnorm", "clipvalue", "global_clipnorm", "use_ema", "loss_scale_factor", "gradient_accumulation_steps", "amsgrad",
)  # fmt: skip


class Formula(NamedTuple):
    """The library's optimizer that makes the steps of one of Keras's."""

    # Of a group of psring_open_model, but for lr.
    options: Dict[str, Any]

    def sent(self, lr: float, first: float) -> Tuple[float, float]:
        """The rate that goes with an update, and the factor of its gradients; `first` is r."""
        return (first, lr / first) if "momentum" in self.options else (lr, 1.0)


def refuse(what: str, together: bool) -> NoReturn:
    """`together`: whether update="local" is possible with this job's sync."""
    raise ValueError(f'rank {_job.rank()}: {what} is not supported with update="fused": {_models.local_remedy(together)}')


def _class_name(optimizer: Any, together: bool) -> str:
    """"SGD", "Adam" or "AdamW". The backends of Keras have subclasses of these; another's subclass
    may do anything. (DistributedOptimizer's has the names of the class that it is made of.)"""
    kind = type(optimizer)
    if kind.__module__.startswith("keras.src.") and kind.__name__ in ("SGD", "Adam", "AdamW"):
        return kind.__name__
    raise ValueError(
        f'rank {_job.rank()}: update="fused" supports SGD, Adam and AdamW, not {kind.__name__}: '
        f"{_models.local_remedy(together)}"
    )


def formula_of(optimizer: Any, together: bool) -> Formula:
    """Errors: what the library cannot do, with its name and the remedy."""
    name = _class_name(optimizer, together)
    for option in _REFUSED:
        value = getattr(optimizer, option, None)
        if value is not None and value is not False:
            refuse(f"{name}({option}={value})", together)
    decay = _models.number("weight_decay", optimizer.weight_decay or 0.0)
    if name == "SGD":
        momentum = _models.number("momentum", optimizer.momentum, 1.0)
        if momentum and decay:
            refuse(f"SGD(momentum={momentum:g}, weight_decay={decay:g}), that is both of them together,", together)
        values = {"lr": 0.0, "momentum": momentum, "nesterov": optimizer.nesterov, "weight_decay": decay}
        return Formula(_models.optimizer_options("sgd", values))
    betas = [_models.number(key, getattr(optimizer, key), 1.0) for key in ("beta_1", "beta_2")]
    values = {"lr": 0.0, "betas": betas, "eps": _models.number("epsilon", optimizer.epsilon), "weight_decay": decay}
    options = _models.optimizer_options("adamw" if decay else "adam", values)
    return Formula({**options, "epsilon_hat": True})


def _slots_of(optimizer: Any) -> Dict[str, List[Any]]:
    """Keras's variables of an optimizer that is built, by the library's names: one for each of
    the optimizer's trainable variables."""
    if hasattr(optimizer, "_velocities"):
        return {"exp_avg": optimizer._momentums, "exp_avg_sq": optimizer._velocities}
    return {"momentum_buffer": optimizer.momentums} if optimizer.momentum else {}


class Fused:
    """psring's part of an optimizer of Keras's; the optimizer owns it. Host calls of its steps
    come from one thread of the backend's at a time."""

    def __init__(self, optimizer: Any, options: Dict[str, Any], together: bool):
        self._options, self._together = options, together
        self._formula = formula_of(optimizer, together)
        self.name = _models.next_name()
        self._lock = threading.Lock()
        self._arrays: Optional[FusedArrays] = None
        self._closed = False
        self._unfetched = False  # steps were made since synchronize_state()
        self._given: Optional[List[np.ndarray]] = None  # to the variables by the last step, where the library has others now
        self._steps = 0  # since self._arrays were opened
        self._names: List[str] = []  # of the variables
        # Whether the rate follows from the step's number alone.
        schedules = keras.optimizers.schedules.LearningRateSchedule
        self._scheduled = isinstance(getattr(optimizer, "_learning_rate", None), schedules)
        # Of the first step.
        self._first_rate, self._num_groups = 1.0, 1
        # What it begins with: steps that have been made, and arrays by slot.
        self._iterations, self._state = 0, {}  # type: int, Dict[str, List[np.ndarray]]
        self._found_iterations = 0  # where these were taken, also of a state that is all zero
        self.take_state(optimizer)
        self._agreed_rate = 0.0

    # ---- The optimizer's state

    def take_loaded(self, optimizer: Any) -> None:
        """All of its variables have been written."""
        if self._arrays is None:
            self.take_state(optimizer)
            return
        warnings.warn(
            'with update="fused" the optimizer\'s state that is loaded after the first step is lost: load it before, '
            "into a new optimizer, and give that to DistributedOptimizer()",
            stacklevel=3,
        )

    def take_state(self, optimizer: Any, in_step: bool = False) -> None:
        """Where it has been loaded, rank 0's is what the first step begins with."""
        if not optimizer.built or self._arrays is not None:
            return
        slots = _slots_of(optimizer)
        values = values_now([optimizer.iterations, *(variable for of_slot in slots.values() for variable in of_slot)])
        if values is None:
            return
        iterations, arrays = int(values[0]), iter(values[1:])
        self._found_iterations = iterations
        state = {name: list(itertools.islice(arrays, len(of_slot))) for name, of_slot in slots.items()}
        self._iterations, self._state = 0, {}
        # All zero: it is new, or of a job that had the state elsewhere and did not fetch it.
        if any(array.any() for of_slot in state.values() for array in of_slot):
            self._iterations, self._state = iterations, state
        elif state and iterations > 0 and _job.rank() == 0 and not in_step:
            warnings.warn(
                f"the optimizer has made {iterations} steps, and all of its {', '.join(state)} are zero, as where a model "
                'was saved with update="fused" and no synchronize_state() before: it begins with zeros',
                stacklevel=3,
            )

    def begin_anew(self, optimizer: Any) -> None:
        """The next step is a first one, of the variables and the state that the optimizer has now. All ranks call it."""
        await_host_calls()
        with self._lock:
            if self._arrays is not None:
                self._alive().close()
                self._arrays, self.name = None, _models.next_name()
                self._steps, self._unfetched, self._given = 0, False, None
        self.take_state(optimizer)

    def warn_of_save(self) -> None:
        """Keras saves the optimizer's variables, which the library's state has not come to."""
        if self._unfetched:
            warnings.warn(
                'the optimizer\'s state of update="fused" is not in what is saved now: before that, all ranks call '
                "optimizer.synchronize_state() (in a callback's on_epoch_end, before the callback that saves)",
                stacklevel=3,
            )

    def synchronize_state(self, optimizer: Any) -> None:
        """Keras's variables of the state become what the library has. All ranks call it."""
        await_host_calls()
        with self._lock:
            if self._arrays is None and not self._closed:
                return  # no step has been made
            arrays = self._alive()
            if self._given is None and not self._together:
                # The parameters of now come with the state, but not to the variables.
                self._given = [np.array(parameter) for parameter in arrays.parameters]
            slots = arrays.fetch_slots()
            self._unfetched = False
        for name, variables in _slots_of(optimizer).items():
            for variable, array in zip(variables, slots[name]):
                variable.assign(self._scaled(name, array, -self._first_rate))

    @staticmethod
    def _scaled(name: str, array: np.ndarray, factor: float) -> np.ndarray:
        """Keras's velocity is the library's buffer times -r."""
        return array * np.float32(factor) if name == "momentum_buffer" else array

    # ---- In the backend's program

    def apply(self, optimizer: Any, grads: List[Any], given: Any) -> None:
        """Gradients go out, and variables take the parameters of the next step."""
        variables, by_variable = self._match(optimizer, grads, given)
        formula = formula_of(optimizer, self._together)
        if formula != self._formula:
            raise ValueError(
                f"rank {_job.rank()}: the optimizer changed from {self._formula.options} to {formula.options}; with "
                'update="fused" only the learning rate may change after DistributedOptimizer(): set others before'
            )
        self.take_state(optimizer, in_step=True)  # before the first one, a script may have written to its variables
        self._names = self._names or [getattr(variable, "path", variable.name) for variable in variables]
        present = [i for i, grad in enumerate(by_variable) if grad is not None]
        values = [keras.ops.convert_to_tensor(variable) for variable in variables]
        sent = [keras.ops.convert_to_tensor(by_variable[i], dtype="float32") for i in present]
        rate = keras.ops.convert_to_tensor(optimizer.learning_rate, dtype="float32")
        iterations = keras.ops.convert_to_tensor(optimizer.iterations)
        groups_of = [0 if optimizer._use_weight_decay(variable) else 1 for variable in variables]
        out, back = Packs([kind_of(value) for value in sent]), Packs([kind_of(value) for value in values])
        packed = back.pack(values, packing_ops())

        def call(arrays: List[Any]) -> List[np.ndarray]:
            arrays = [np.asarray(array) for array in arrays]
            gradients: List[Any] = [None] * len(variables)
            for index, gradient in zip(present, out.unpack(arrays[: len(out.members)], np)):
                gradients[index] = gradient
            before = back.unpack(arrays[len(out.members) : -2], np)
            return back.pack(self._step(gradients, before, float(arrays[-2]), int(arrays[-1]), groups_of), np)

        results = on_host(call, [*out.pack(sent, packing_ops()), *packed, rate, iterations], packed)
        for variable, result in zip(variables, back.unpack(results, packing_ops())):
            optimizer.assign(variable, result)
        optimizer._iterations.assign_add(1)

    def _match(self, optimizer: Any, grads: List[Any], given: Any) -> Tuple[List[Any], List[Any]]:
        """The optimizer's variables, and their gradients in the same order."""
        here = f"rank {_job.rank()}: apply()"
        if given is None:
            if not optimizer.built:
                raise ValueError(f"{here}: call build(variables) before, or pass the variables beside the gradients")
            given = optimizer._trainable_variables
        given = list(given)
        if not optimizer.built:
            optimizer.build(given)
        optimizer._check_variables_are_known(given)
        variables = optimizer._trainable_variables
        places = [optimizer._get_variable_index(variable) for variable in given]
        if len(grads) != len(given) or sorted(places) != list(range(len(variables))):
            raise ValueError(
                f'{here}: with update="fused" every step updates the {len(variables)} variables that the optimizer '
                f"was built with, and gets a gradient for each, not {len(grads)} for {len(given)}: compile the model "
                'again after freezing layers, with a new optimizer, or use update="local"'
            )
        by_variable: List[Any] = [None] * len(variables)
        for place, grad in zip(places, grads):
            by_variable[place] = grad
        if not any(grad is not None for grad in grads):
            raise ValueError(f"{here}: there are no gradients: does the loss depend on the variables?")
        self._check_variables(variables)
        return variables, by_variable

    def _check_variables(self, variables: List[Any]) -> None:
        for variable in variables:
            name = getattr(variable, "path", variable.name)
            dtype = keras.backend.standardize_dtype(variable.dtype)
            if dtype != "float32":
                refuse(f"the variable {name} of {dtype} (variables of float32 are)", self._together)
            if getattr(variable, "constraint", None) is not None:
                refuse(f"the constraint of {name}", self._together)
            if getattr(variable, "overwrite_with_gradient", False):
                refuse(f"the variable {name}, which its gradient overwrites,", self._together)

    # ---- On the host

    def _check_beginning(self, iterations: int) -> None:
        """Before the first step: JAX's stateless_apply() is given a state that may be another than the variables'."""
        if iterations != self._found_iterations and self._formula.options["name"] != "sgd":
            warnings.warn(
                f"rank {_job.rank()}: the first step was given an optimizer's state of {iterations} steps, and the "
                f"optimizer's variables have one of {self._found_iterations}, with which update=\"fused\" begins: assign the "
                "state to optimizer.variables before the first step",
                stacklevel=2,
            )

    def _step(
        self, gradients: List[Any], values: List[np.ndarray], lr: float, iterations: int, groups_of: List[int]
    ) -> List[np.ndarray]:
        """The library's memory after a step, which the next one changes."""
        lr = _models.number("the optimizer's learning rate", lr)
        with self._lock:
            if self._arrays is None and not self._closed:
                self._check_beginning(iterations)
                self._open(values, lr, groups_of)
            arrays = self._alive()
            # In ssp and async, the parameters of now come with a state that is fetched.
            if self._together and self._steps > 0 and _models.is_sampled(self._steps):
                self._warn_of_writes(values, arrays)
            self._steps += 1
            self._given = None
            if self._together and not self._scheduled and lr != self._agreed_rate:
                self._agree_on(lr)
            _metrics.count_step()
            rate, factor = self._formula.sent(lr, self._first_rate)
            arrays.step(gradients, [rate] * self._num_groups, factor)
            assert arrays.model is not None
            self._unfetched = bool(arrays.model.slot_names)
            return arrays.parameters

    def _warn_of_writes(self, values: List[np.ndarray], arrays: FusedArrays) -> None:
        """Where the variables are not the parameters that the library has given them."""
        for name, value, given in zip(self._names, values, arrays.parameters):
            if not np.array_equal(value, given, equal_nan=True):
                warnings.warn(
                    f"rank {_job.rank()}: a script has written to {name} since the last step, which is lost: with "
                    'update="fused" the parameters belong to the library after the first step. Load weights before it, or '
                    "compile the model again with a new DistributedOptimizer() after it",
                    stacklevel=2,
                )
                return

    def _agree_on(self, lr: float) -> None:
        """Parts of the model would take one rank's rate, others another's, as after a ReduceLROnPlateau
        of a rank's own validation. A rank whose rate has not changed does not come here."""
        try:
            memory.agree([f"the learning rate {lr:g}"], f"the changed learning rate of {self.name}")
        except _lib.PsringError as error:
            raise type(error)(
                f"{error}. The learning rate went from {self._agreed_rate:g} to {lr:g} on rank {_job.rank()}: all "
                "ranks change it alike (MetricAverageCallback goes before ReduceLROnPlateau)"
            ) from None
        self._agreed_rate = lr

    def _open(self, values: List[np.ndarray], lr: float, groups_of: List[int]) -> None:
        """All ranks come here with their first gradients; the parameters become rank 0's."""
        settings = {**self._options, **self._formula.options, "lr": lr if self._together else "each rank's"}
        memory.agree(
            ["settings of DistributedOptimizer: " + ", ".join(f"{key}={value}" for key, value in settings.items())]
            + [f"variable {i}, float32{list(v.shape)}, group {g}" for i, (v, g) in enumerate(zip(values, groups_of))],
            self.name + ".variables",
        )
        self._agreed_rate = lr
        first = 1.0 if self._scheduled else lr or 1.0
        # In ssp and async each rank's step is an update.
        updates = self._iterations * (1 if self._together else _job.size())
        self._first_rate, updates = memory.broadcast_json([first, updates], name=self.name + ".first_rate")
        groups = [{**self._formula.options, "lr": self._first_rate}]
        if any(groups_of):
            groups.append({**groups[0], "weight_decay": 0.0})
        self._num_groups = len(groups)
        arrays = FusedArrays(
            self.name, [(f"variable {i}", value) for i, value in enumerate(values)],
            {**self._options, "groups": groups, "updates": updates}, groups_of,
        )  # fmt: skip
        slots = [
            arrays.flat([self._scaled(name, array, -1 / self._first_rate) for array in of_slot])
            for name, of_slot in self._state.items()
        ]
        arrays.begin(slots if _job.rank() == 0 else [])
        self._arrays, self._state = arrays, {}
        _metrics.tell_model(sum(value.size for value in values), arrays.crc, optimizer=self)

    def synchronize(self, optimizer: Any) -> None:
        """All ranks' variables become the same, with every gradient in them. Where they are the same
        already they stay as they are, also what a script has written to them since the last step; elsewhere
        such a write, on any rank, makes all of them rank 0's."""
        if self._together:
            return
        await_host_calls()
        with self._lock:
            if self._arrays is None:
                return
            model = self._alive().model
            assert model is not None
            given = self._given or [np.array(parameter) for parameter in self._alive().parameters]
            written = [
                getattr(variable, "path", variable.name)
                for variable, value in zip(optimizer._trainable_variables, given)
                if not np.array_equal(keras.ops.convert_to_numpy(variable), value, equal_nan=True)
            ]
            model.synchronise()
            self._given = None
            if memory.sum(len(written)) > 0:
                if written:
                    warnings.warn(
                        f"rank {_job.rank()}: synchronize_parameters() makes the variables rank 0's: something has "
                        f"written to {written[0]} since the last step (EarlyStopping(restore_best_weights=True)?)",
                        stacklevel=3,
                    )
                mine = [keras.ops.convert_to_numpy(variable) for variable in optimizer._trainable_variables]
                values = broadcast_numpy(mine, 0, self.name + ".restored")
            else:
                values = [np.array(parameter) for parameter in self._alive().parameters]
        for variable, value in zip(optimizer._trainable_variables, values):
            variable.assign(value)

    def close(self) -> None:
        await_host_calls()
        with self._lock:
            self._closed = True
            if self._arrays is not None:
                self._arrays.close()

    def _alive(self) -> FusedArrays:
        if self._closed:
            raise RuntimeError("this optimizer has been closed: make a new optimizer")
        assert self._arrays is not None
        if self._arrays.model is None:
            raise RuntimeError("this optimizer's job has ended by psring.shutdown(): make a new optimizer")
        return self._arrays
