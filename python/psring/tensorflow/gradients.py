"""DistributedGradientTape: a tape whose gradients are everybody's."""

import functools
from typing import Any, List, Sequence, Set, Tuple

import tensorflow as tf

from .. import _job, _metrics
from .._host_arrays import Scales, crc32
from .._names import name_among
from ..collectives import Average, ReduceOp, Sum, op_code
from ..process_sets import ProcessSet, check_process_set, global_process_set
from ._host import is_variable, unconverted
from .collectives import reduce_each
from .compression import Compression, compressor

# Models of which the metrics know, by what they train: a script has a tape for each step.
_told: Set[Tuple[str, ...]] = set()
_job.at_init(_told.clear)


def _tell(variables: Sequence[Any]) -> None:
    names = tuple(f"{variable.name}{variable.shape}" for variable in variables)
    if not names or names in _told:
        return
    _told.add(names)
    sizes = [tf.TensorShape(variable.shape).num_elements() or 0 for variable in variables]  # None: not known
    _metrics.tell_model(sum(sizes), lambda: crc32(tf.convert_to_tensor(variable).numpy() for variable in variables))


class _Reduction:
    """What one tape does with gradients."""

    def __init__(self, op: ReduceOp, scales: Scales, compression: Any, sparse_as_dense: bool, process_set: ProcessSet):
        self._op, self._scales, self._compression = op, scales, compressor(compression)
        self._sparse_as_dense, self._process_set = sparse_as_dense, process_set
        # A script's tapes are called one after another, in the same order on all ranks.
        self._name = name_among("tensorflow.gradients", process_set)

    def reduce(self, gradients: Sequence[Any]) -> List[Any]:
        """Of those that are not None."""
        out = list(gradients)
        if self._sparse_as_dense:
            out = [tf.convert_to_tensor(each) if isinstance(each, tf.IndexedSlices) else each for each in out]
        name, process_set = self._name, self._process_set
        return reduce_each(out, self._op, self._compression, self._scales, name, process_set, _metrics.count_step)


class _Distributed:
    """What DistributedGradientTape adds to the class of a tape."""

    _psring: _Reduction

    @unconverted
    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        gradients = super().gradient(target, sources, *args, **kwargs)  # type: ignore[misc]
        _tell([source for source in tf.nest.flatten(sources) if is_variable(source)])
        return tf.nest.pack_sequence_as(gradients, self._psring.reduce(tf.nest.flatten(gradients)))


@functools.lru_cache(maxsize=None)
def _distributed(kind: Any) -> Any:
    return type(kind.__name__, (_Distributed, kind), {"__module__": kind.__module__})


@unconverted
def DistributedGradientTape(
    gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
    sparse_as_dense: bool = False, op: ReduceOp = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
    groups: Any = None, process_set: ProcessSet = global_process_set,
) -> Any:  # fmt: skip
    """Makes the gradients of a tape everybody's, and returns it: it is the same object.

    Its gradient() reduces, at once or each time that the program of a tf.function comes to it. All ranks call it, for the
    same sources; a gradient that is None must be None on all ranks. The bits are the same on all ranks.

    Args:
        compression: of what travels.
        sparse_as_dense: gradients of embeddings travel as whole tensors, not as everybody's slices.
        op: Average, or Sum.
        gradient_predivide_factor: gradients are divided by it before they are summed, and the sum by the rest.
        device_dense, device_sparse, num_groups, groups: Horovod's; without effect: psring reduces on the host, and
            packs small gradients itself.
    """
    _job.current()
    if isinstance(gradtape, _Distributed):
        raise ValueError("this tape is a DistributedGradientTape already")
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(f"DistributedGradientTape({gradtape!r}): pass a tf.GradientTape")
    op_code(op)
    if op not in (Average, Sum):
        raise ValueError(f"DistributedGradientTape(op={op.name}): it is Average or Sum")
    check_process_set(process_set)
    scales = Scales()
    if gradient_predivide_factor != 1.0:
        if op is not Average:
            raise ValueError("gradient_predivide_factor is for op=Average")
        op, scales = Sum, Scales(1.0 / gradient_predivide_factor, gradient_predivide_factor / process_set.size())
    gradtape._psring = _Reduction(op, scales, compression, sparse_as_dense, process_set)
    gradtape.__class__ = _distributed(type(gradtape))  # type: ignore[arg-type]
    return gradtape
