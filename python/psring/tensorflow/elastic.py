"""What a TensorFlow script goes on from where its job is started again, as psring.torch.elastic.

    state = ps.elastic.TensorFlowState(variables=model.trainable_variables + optimizer.variables, epoch=0)

    @ps.elastic.run
    def train(state):
        while state.epoch < 10:
            ...
            state.epoch += 1
            state.commit()

    train(state)

TensorFlowKerasState, of a model and an optimizer of Keras's, is KerasState of psring.keras.elastic, where the callbacks
for model.fit() are, too.
"""

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, TypeVar

import tensorflow as tf

from .. import _elastic, _job
from ._host import is_variable

_Result = TypeVar("_Result")


def _variables(value: Any) -> List[Any]:
    """Those that a value is or consists of; empty: it is another value."""
    if is_variable(value):
        return [value]
    if isinstance(value, (list, tuple)) and all(map(is_variable, value)):
        return list(value)
    return []


class TensorFlowState(_elastic.State):
    """Values that all ranks have alike and that outlive the job's processes, as attributes of these names.

    A variable and a list of variables, such as those of a model and of its optimizer, stay the objects that they are, and
    take the values of the last commit(). Any other value, such as a number, is replaced.

    Rank 0 keeps the last commit in the folder PSRING_STATE_DIR: that of psring run --state-dir, or a temporary one of
    psring run --max-restarts. Its file is a pickle, which can run code in whoever reads it: let nobody else
    write to the folder.

    Args:
        variables: have been built, also the optimizer's (optimizer.build(model.trainable_variables)).
    """

    _with_state = "with variables"

    def __init__(self, variables: Optional[List[Any]] = None, **values: Any):
        if variables is not None:
            if not _variables(variables):
                raise TypeError(f"TensorFlowState(variables={variables!r}): it takes a list of variables")
            values = {"variables": variables, **values}
        super().__init__("tensorflow", values)

    def _has_state(self, value: Any) -> bool:
        return bool(_variables(value))

    def _states(self) -> Dict[str, Any]:
        if _job.rank() != 0:
            return {}
        kept = {name: _variables(getattr(self, name)) for name in self._names}
        return {
            name: [(variable.name, tf.convert_to_tensor(variable).numpy()) for variable in variables]
            for name, variables in kept.items()
            if variables
        }

    def _take(self, states: Dict[str, Any], values: Dict[str, Any], of_commit: bool) -> None:
        states, values = _elastic.from_rank_0((states, values))
        for name, saved in states.items():
            variables = _variables(getattr(self, name))
            try:
                _elastic.assign(variables, [variable.name for variable in variables], saved)
            except ValueError as error:
                raise self._differs(name, error, of_commit) from None
        for name, value in values.items():
            setattr(self, name, value)


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """A decorator of func(state, ...), of one of the states above: it goes on from its last commit, or else begins with
    rank 0's values.

    Another call in the same process leaves the state as it is. All ranks call it. A failure ends the process as ever; it
    is psring run --max-restarts=N that starts all again.
    """
    return _elastic.begins(func, _elastic.State)


__all__ = ["TensorFlowState", "run"]


if TYPE_CHECKING:
    from ..keras.elastic import KerasState

    TensorFlowKerasState = KerasState
else:

    def __getattr__(name: str) -> Any:
        if name == "TensorFlowKerasState":  # Keras is imported by who has it
            from ..keras.elastic import KerasState

            return KerasState
        raise AttributeError(f"module 'psring.tensorflow.elastic' has no attribute {name!r}")
