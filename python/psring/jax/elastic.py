"""What a JAX script goes on from where its job is started again, as psring.torch.elastic.

    state = ps.elastic.JaxState(params=params, opt_state=opt_state, epoch=0)

    @ps.elastic.run
    def train(state):
        while state.epoch < 10:
            ...
            state.params, state.opt_state = step(state.params, state.opt_state, batch)
            state.epoch += 1
            state.commit()

    train(state)
"""

import pickle
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

import jax
import numpy as np

from .. import _elastic, _job
from ._arrays import is_key
from .fused import FusedOptimizer

_Result = TypeVar("_Result")


class _Array:
    """An array of JAX's as it is written: the host's array, of a key its data."""

    def __init__(self, array: jax.Array):
        keys = is_key(array)
        self.key = str(jax.random.key_impl(array)) if keys else None
        self.weak_type = getattr(array, "weak_type", False)  # a key has none
        self.array = np.asarray(jax.random.key_data(array) if keys else array)

    def to_jax(self, place: Any) -> jax.Array:
        """On the devices where `place` is, if a script has put that there and it is of the same shape."""
        out = jax.numpy.array(self.array)  # a copy: a program may write where its arguments are (donate_argnums)
        if out.dtype != self.array.dtype:
            raise ValueError(f"an array of {self.array.dtype} needs jax_enable_x64, which was set where it was committed")
        if self.weak_type:
            zeros = jax.numpy.full(out.shape, {"i": 0, "f": 0.0, "c": 0j}[out.dtype.kind])
            out = zeros.at[...].set(out) if zeros.dtype == out.dtype else out
        if self.key is not None:
            out = jax.random.wrap_key_data(out, impl=self.key)
        if isinstance(place, jax.Array) and place.committed and place.shape == out.shape:
            return jax.device_put(out, place.sharding)
        return out


class _Tree:
    """A tree whose structure, or one of its functions, cannot be pickled, such as Flax's TrainState and Equinox's modules:
    its leaves by their paths. Whoever takes them has the structure, and the functions, of his own script."""

    def __init__(self, tree: Any):
        self.leaves = [(path, None if callable(leaf) else leaf) for path, leaf in _named(tree)]

    def like(self, now: Any) -> Any:
        """Errors: ValueError where the script's own tree has other paths or shapes."""
        leaves, structure = jax.tree_util.tree_flatten(now)
        why = _first_difference(
            {path: _shape(leaf) for path, leaf in self.leaves},
            {path: _shape(None if callable(leaf) else leaf) for path, leaf in _named(now)},
        )
        if why is not None:
            raise ValueError(why)
        out = [place if callable(place) else leaf for (_, leaf), place in zip(self.leaves, leaves)]
        return jax.tree_util.tree_unflatten(structure, out)


def _shape(leaf: Any) -> str:
    """A number becomes an array in a program, such as a TrainState's step in its first one."""
    if isinstance(leaf, _Array):
        return str(list(leaf.array.shape if leaf.key is None else leaf.array.shape[:-1]))
    is_array = hasattr(leaf, "shape") or isinstance(leaf, (int, float, complex))
    return str(list(np.shape(leaf))) if is_array else "no array"


def _named(tree: Any) -> List[Tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]


def _refuse(name: str, tree: Any) -> None:
    """Errors: what cannot be written, with its place in the tree."""
    for path, leaf in _named(tree):
        if isinstance(leaf, FusedOptimizer):
            raise TypeError(
                f"JaxState: {name}{path} is a FusedOptimizer, whose state the library has: give JaxState(params=..., "
                "opt_state=None), make it in the function of elastic.run, with FusedOptimizer(state.params, ..., "
                "state=state.opt_state), and before each commit() set state.params = optimizer.synchronize_parameters() "
                "and state.opt_state = optimizer.state() on all ranks"
            )
        if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
            continue
        if leaf.is_deleted():
            raise RuntimeError(
                f"JaxState: the memory of {name}{path} has gone to a program (donate_argnums): set state.{name} to what "
                "that has returned"
            )
        if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
            raise ValueError(
                f"JaxState: {name}{path} lies on devices of other processes, too (jax.distributed): gather it before, by "
                "jax.experimental.multihost_utils.process_allgather(..., tiled=True)"
            )


def _on_host(tree: Any) -> Any:
    leaves, structure = jax.tree_util.tree_flatten(tree)
    written = [_Array(leaf) if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
    out = jax.tree_util.tree_unflatten(structure, written)
    try:  # without its arrays
        pickle.dumps(jax.tree_util.tree_unflatten(structure, [leaf if callable(leaf) else 0 for leaf in leaves]), protocol=4)
    except (pickle.PicklingError, AttributeError, TypeError):
        return _Tree(out)
    return out


def _with_jax(tree: Any, now: Any) -> Any:
    """What _on_host() has been given. `now`: what is in its place, for the devices. Errors: as _Tree.like()."""
    if isinstance(tree, _Tree):
        tree = tree.like(now)
    leaves, structure = jax.tree_util.tree_flatten(tree)
    places, structure_now = jax.tree_util.tree_flatten(now)
    if structure != structure_now:
        places = [None] * len(leaves)
    out = [leaf.to_jax(place) if isinstance(leaf, _Array) else leaf for leaf, place in zip(leaves, places)]
    return jax.tree_util.tree_unflatten(structure, out)


def _described(leaf: Any) -> str:
    if isinstance(leaf, _Array):
        leaf = leaf.array if leaf.key is None else leaf.to_jax(None)
    return f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") and hasattr(leaf, "shape") else type(leaf).__name__


def _difference(saved: Any, now: Any) -> Optional[str]:
    """The first one between two trees, of which `now` is the script's own."""
    return _first_difference(
        {path: _described(leaf) for path, leaf in _named(saved)}, {path: _described(leaf) for path, leaf in _named(now)}
    )


def _first_difference(there: Dict[str, str], here: Dict[str, str]) -> Optional[str]:
    """What is at each path of two trees."""
    for path in [*there, *here]:
        if there.get(path) != here.get(path):
            return f"{path or 'the array'} is {there.get(path, 'nothing')} there, and {here.get(path, 'nothing')} here"
    return None


class JaxState(_elastic.State):
    """Values that all ranks have alike and that outlive the job's processes, as attributes of these names.

    They are pytrees of arrays (such as optax's states; also of bfloat16, and keys of jax.random) and plain values. Of
    trees with functions, such as Flax's TrainState and Equinox's modules, a commit has the leaves alone, and the script's
    value, which has the same paths and shapes, keeps its own functions. An array of JAX's comes back as one: on the
    devices, or with the sharding, that the value has when a function of run() begins, or else on the default device. An
    array of NumPy's comes back as one of NumPy's.

    `params` and `opt_state` have the paths, shapes and dtypes of the last commit(), unless they have no arrays yet.

    Rank 0 keeps the last commit in the folder PSRING_STATE_DIR: that of psring run --state-dir, or a temporary one of
    psring run --max-restarts. Its file is a pickle, which can run code in whoever reads it: let nobody else
    write to the folder.
    """

    def __init__(self, **values: Any):
        super().__init__("jax", values)
        self._has_taken = False  # others' values, or a commit's
        for name, value in values.items():
            _refuse(name, value)

    def _values(self) -> Dict[str, Any]:
        for name in self._names:
            _refuse(name, getattr(self, name))
        return {name: _on_host(getattr(self, name)) for name in self._names}

    def _take(self, states: Dict[str, Any], values: Dict[str, Any], of_commit: bool) -> None:
        is_first, self._has_taken = not self._has_taken, True
        values = _elastic.from_rank_0(values)
        if not of_commit and _job.rank() == 0:
            return  # they are its own
        for name, value in values.items():
            now = getattr(self, name)
            try:
                # In a later one, a script may have set another value since.
                has_arrays = any(isinstance(leaf, jax.Array) for leaf in jax.tree_util.tree_leaves(now))
                is_compared = name in ("params", "opt_state") and not isinstance(value, _Tree)  # it compares by itself
                if is_compared and has_arrays and is_first:
                    why = _difference(value, now)
                    if why is not None:
                        raise ValueError(why)
                setattr(self, name, _with_jax(value, now))
            except ValueError as error:
                raise self._differs(name, error, of_commit) from None


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """A decorator of func(state, ...): it goes on from the state's last commit, or else begins with rank 0's values.

    Another call in the same process leaves the state as it is. All ranks call it. A failure ends the process as ever; it
    is psring run --max-restarts=N that starts all again.
    """
    return _elastic.begins(func, JaxState)


__all__ = ["JaxState", "run"]
