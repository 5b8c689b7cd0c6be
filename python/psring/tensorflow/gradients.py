"""DistributedGradientTape: a tape whose gradients are everybody's."""

import functools
import warnings
from typing import Any, Dict, List, Sequence, Set, Tuple

import tensorflow as tf

from .. import _job, _metrics, _settings
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

    def __init__(
        self, op: ReduceOp, scales: Scales, compression: Any, sparse_as_dense: bool, process_set: ProcessSet,
        scale_local: bool,
    ):  # fmt: skip
        self._op, self._scales, self._compression = op, scales, compressor(compression)
        self._sparse_as_dense, self._process_set = sparse_as_dense, process_set
        self._local_factor = 1.0 / process_set.size() if scale_local else 1.0
        self.local: Dict[int, Any] = {}  # sources that each rank has of its own, by id()
        # A script's tapes are called one after another, in the same order on all ranks.
        self._name = name_among("tensorflow.gradients", process_set)

    def reduce(self, sources: Sequence[Any], gradients: Sequence[Any]) -> List[Any]:
        """Of those that are not None. Those of local sources stay this rank's."""
        _tell([source for source in sources if is_variable(source) and id(source) not in self.local])
        shared = [i for i, source in enumerate(sources) if id(source) not in self.local]
        out = [self._scaled(gradient) if id(source) in self.local else None for source, gradient in zip(sources, gradients)]
        for i, reduced in zip(shared, self._reduce([gradients[i] for i in shared])):
            out[i] = reduced
        return out

    def _scaled(self, gradient: Any) -> Any:
        if gradient is None or self._local_factor == 1.0:
            return gradient
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(self._scaled(gradient.values), gradient.indices, gradient.dense_shape)
        return gradient * tf.cast(self._local_factor, gradient.dtype)

    def _reduce(self, gradients: Sequence[Any]) -> List[Any]:
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
        reduced = self._psring.reduce(tf.nest.flatten(sources), tf.nest.flatten(gradients))
        return tf.nest.pack_sequence_as(gradients, reduced)

    def register_local_source(self, source: Any) -> None:
        """gradient() leaves the gradient of this source, which each rank has of its own, as this rank's."""
        self._psring.local[id(source)] = source


@functools.lru_cache(maxsize=None)
def _distributed(kind: Any) -> Any:
    return type(kind.__name__, (_Distributed, kind), {"__module__": kind.__module__})


@unconverted
def DistributedGradientTape(
    gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
    sparse_as_dense: bool = False, op: ReduceOp = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
    groups: Any = None, process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True,
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
        scale_local_gradients: gradients of what register_local_source() of the tape names are divided by the number of
            ranks, as the loss is a mean over all of them.
    """
    sync = _job.current().defaults["sync"]
    if not _settings.takes_steps_together(sync):
        warnings.warn(
            f'sync="{sync}" does not apply to a DistributedGradientTape, which waits for all ranks in each step, as with "bsp": '
            "for servers that apply the gradients, use a psring.keras.DistributedOptimizer in place of the tape",
            stacklevel=3,
        )
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
    gradtape._psring = _Reduction(op, scales, compression, sparse_as_dense, process_set, scale_local_gradients)
    gradtape.__class__ = _distributed(type(gradtape))  # type: ignore[arg-type]
    return gradtape


@unconverted
def PartialDistributedGradientTape(
    gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
    sparse_as_dense: bool = False, op: ReduceOp = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
    groups: Any = None, process_set: ProcessSet = global_process_set, local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:  # fmt: skip
    """A DistributedGradientTape that leaves the gradients of `local_layers`, a layer or several, as this rank's."""
    layers = [local_layers] if hasattr(local_layers, "trainable_weights") else list(local_layers or [])
    for layer in layers:
        if not hasattr(layer, "trainable_weights"):
            raise TypeError(f"PartialDistributedGradientTape(local_layers={layer!r}): pass layers of Keras")
    tape = DistributedGradientTape(
        gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, num_groups,
        groups, process_set, scale_local_gradients,
    )  # fmt: skip
    for layer in layers:
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
