"""Collectives on pytrees."""

from typing import Any, Callable, List, Optional

import jax
import numpy as np

from .. import _job
from .. import collectives as memory
from .._host_arrays import broadcast_in_place
from .._packs import WORTH_PACKING, Comparison, Kind, Packs
from ..collectives import Average, ReduceOp, Sum, auto_name, name_among
from ..process_sets import ProcessSet, global_process_set
from ._arrays import call_on_host, empty, is_key, on_host, to_jax, traced


# What a collective does with leaves, its name, and whether this is in jit; and with the gradients of
# its results, by its name.
_Call = Callable[[List[Any], str, bool], List[Any]]
_Gradient = Callable[[List[Any], str], List[Any]]


class _BadLeaf(TypeError):
    def __init__(self, index: int, why: str):
        super().__init__(why)
        self.index = index


def _array(leaf: Any, index: int) -> np.ndarray:
    try:
        array = on_host(leaf)
    except TypeError as error:  # a key of jax.random.key, say
        raise _BadLeaf(index, str(error)) from None
    if array.dtype.kind in "OUS":
        raise _BadLeaf(index, f"{type(leaf).__name__} is no array of numbers: leave it out of the tree")
    return array


def _number(dtype: np.dtype, index: int, op: ReduceOp) -> int:
    if op is Average and dtype.kind in "iub":
        raise _BadLeaf(index, f"op=Average of {dtype} has no exact result: use Sum, or convert to floats")
    number = memory.number_of_dtype(dtype)
    if dtype == jax.dtypes.float0:
        raise _BadLeaf(index, "a gradient of integers has no values: leave it out of the tree")
    if dtype.kind == "c":
        raise _BadLeaf(index, f"{dtype} is not reduced: reduce its real and its imaginary part")
    if number is None:
        raise _BadLeaf(index, f"{dtype} is not reduced: convert it, to int64 or float64 say, or leave it out")
    return number


def _check_in_jit(leaves: List[Any], op: Optional[ReduceOp] = None) -> None:
    """Finds the leaves that the callback would refuse: it runs in the compiled program, whose error names no leaf."""
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, jax.Array):
            dtype = _array(leaf, index).dtype
        elif jax.numpy.issubdtype(leaf.dtype, jax.dtypes.extended):
            raise _BadLeaf(index, f"{leaf.dtype} is no array of numbers: use jax.random.key_data() of a key")
        else:
            dtype = np.dtype(leaf.dtype)
        if op is not None:
            _number(dtype, index, op)


def _with_gradient(call: _Call, gradient: _Gradient, name: str) -> Callable[..., List[Any]]:
    """call() in a program, as a function of its leaves, which JAX can differentiate backwards."""

    @jax.custom_vjp
    def function(*leaves: Any) -> List[Any]:
        return call(list(leaves), name, True)

    def forward(*leaves: Any) -> Any:
        return function(*leaves), None  # which has a gradient again, for one of a gradient

    def backward(_: Any, gradients: List[Any]) -> Any:
        known = [i for i, value in enumerate(gradients) if value.dtype != jax.dtypes.float0]  # not of integers
        out: List[Any] = [None] * len(gradients)
        for i, value in zip(known, gradient([gradients[i] for i in known], name + ".grad")):
            out[i] = value
        return tuple(out)

    function.defvjp(forward, backward)
    return function


def _call_on_leaves(
    what: str, call: _Call, gradient: _Gradient, tree: Any, op: Optional[ReduceOp], name: Optional[str],
    process_set: ProcessSet,
) -> Any:  # fmt: skip
    """call() as a tree like this one; errors name the leaf. `op`: of a reduction."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    in_jit = traced(leaves)
    called = name or _name("jax." + what, in_jit, process_set)
    if not leaves:
        return tree
    try:
        if in_jit:
            _check_in_jit(leaves, op)
            out = _with_gradient(call, gradient, called)(*leaves)
        else:
            out = call(leaves, called, False)
    except _BadLeaf as error:
        path = jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(tree)[error.index][0])
        raise TypeError(f"rank {_job.rank()}: psring.jax.{what}: {path or 'the argument'}: {error}") from None
    return jax.tree_util.tree_unflatten(structure, out)


def reduce_all(arrays: List[Any], op: ReduceOp, name: str, process_set: ProcessSet) -> List[np.ndarray]:
    operations, results = [], []
    for index, array in enumerate(arrays):
        source = _array(array, index)
        dtype = _number(source.dtype, index, op)
        result = empty(source.shape, source.dtype)
        operations.append(
            memory.start_allreduce(
                f"{name}.{index}", source.ctypes.data, result.ctypes.data, source.size, dtype, op,
                process_set=process_set, keep=(source, result),
            )  # fmt: skip
        )
        results.append(result)
    for operation in operations:
        operation.finish()
    return results


def _kind(leaf: Any) -> Kind:
    if not isinstance(leaf, (jax.Array, np.ndarray)) or not jax.numpy.issubdtype(leaf.dtype, np.number):
        return None  # numbers of Python's, or what is an error
    return str(leaf.dtype), leaf.shape


def _reduce_in_packs(leaves: List[Any], op: ReduceOp, name: str, process_set: ProcessSet, in_jit: bool) -> List[Any]:
    kinds = [_kind(leaf) if len(leaves) >= WORTH_PACKING else None for leaf in leaves]
    packs = Packs(kinds)
    comparison = Comparison(packs)

    def call(arrays: List[Any]) -> List[np.ndarray]:
        if len(packs.members) < len(leaves):
            [sums] = reduce_all([np.array(comparison.numbers)], Sum, name + ".packs", process_set)
            comparison.check(sums, name, process_set)
        try:
            return reduce_all(arrays, op, name, process_set)
        except _BadLeaf as error:
            raise _BadLeaf(packs.members[error.index][0], str(error)) from None

    if in_jit:
        packed = packs.pack(leaves, jax.numpy)
        return packs.unpack(call_on_host(call, packed, in_jit=True), jax.numpy)
    arrays = [leaf if kind is None else on_host(leaf) for leaf, kind in zip(leaves, kinds)]
    return [to_jax(array) for array in packs.unpack(call(packs.pack(arrays, np)), np)]


def _broadcast_all(arrays: List[Any], root_rank: int, name: str, process_set: ProcessSet) -> List[np.ndarray]:
    results = []
    for index, array in enumerate(arrays):
        source = _array(array, index)
        results.append(empty(source.shape, source.dtype))
        results[-1][...] = source
    broadcast_in_place(results, root_rank, name, process_set)
    return results


def _name(kind: str, in_jit: bool, process_set: ProcessSet) -> str:
    """Calls within jit run in the order of the program, one after another, and share a name: one rank
    may trace a function again where another does not."""
    if in_jit:
        return name_among(kind + ".in_jit", process_set)
    return auto_name(kind, process_set)


def allreduce(
    tree: Any, op: ReduceOp = Average, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The reduction of every array of a pytree over all ranks, by default the mean.

    The gradient is the same reduction of all ranks' gradients (as Horovod's), of Sum and Average. All
    ranks take it, backwards (jax.grad, jax.vjp).
    """
    memory.op_code(op)  # a compiled program would say it in an error of JAX's

    def gradient(gradients: List[Any], called: str) -> List[Any]:
        if op not in (Average, Sum):
            raise NotImplementedError(
                f"rank {_job.rank()}: psring.jax.allreduce with op={op.name} has no gradient: pass "
                "jax.lax.stop_gradient() of the argument"
            )
        return allreduce(gradients, op, called, process_set)

    return _call_on_leaves(
        "allreduce",
        lambda leaves, called, in_jit: _reduce_in_packs(leaves, op, called, process_set, in_jit),
        gradient,
        tree,
        op,
        name,
        process_set,
    )


def broadcast(
    tree: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's arrays, for every array of a pytree; also its keys of jax.random.

    The gradient, at the root, is the mean of all ranks' (as Horovod's); elsewhere it is 0.
    """
    root_rank = memory.check_root(root_rank, process_set)

    def call(leaves: List[Any], called: str, in_jit: bool) -> List[Any]:
        return call_on_host(
            lambda arrays: _broadcast_all(arrays, root_rank, called, process_set), leaves, in_jit=in_jit
        )

    def gradient(gradients: List[Any], called: str) -> List[Any]:
        means = allreduce(gradients, Average, called, process_set)
        return [mean * (_job.rank() == root_rank) for mean in means]

    leaves, structure = jax.tree_util.tree_flatten(tree)
    plain = structure.unflatten([jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves])
    out = jax.tree_util.tree_leaves(_call_on_leaves("broadcast", call, gradient, plain, None, name, process_set))
    wrap = jax.random.wrap_key_data
    return structure.unflatten(
        [wrap(new, impl=jax.random.key_impl(leaf)) if is_key(leaf) else new for new, leaf in zip(out, leaves)]
    )
