"""DistributedOptimizer: an optimizer of torch's whose gradients are everybody's."""

import functools
import weakref
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Type

import torch

from .. import _failure, _job, _lib, _metrics
from .._models import out_of_step
from ..collectives import Average, ReduceOp
from ..process_sets import ProcessSet, global_process_set
from . import fused
from .buffers import Buffers
from .compression import Compression, Compressor
from .functions import broadcast_parameters, check_optimizer
from .gradient_exchange import ModelExchange
from .part import Part
from .settings import make_settings, whole_passes
from .sync_batch_norm import warn_of_torchs_norm


# With torch's hooks of step() and its profiler around it, which torch 1.13 does not offer.
_fused_step = getattr(torch.optim.Optimizer, "profile_hook_step", lambda step: step)(
    lambda optimizer, closure=None: optimizer._psring.fused_step(closure)
)


class _Distributed:
    """What DistributedOptimizer adds to the class of an optimizer."""

    _psring: "Part"
    param_groups: List[Dict[str, Any]]
    state: Dict[Any, Any]

    def step(self, *arguments: Any, **more: Any) -> Any:
        """Applies everybody's gradients. Waits for what is not there yet. The arguments are the optimizer's own."""
        part = self.__dict__.get("_psring")
        if part is None:  # closed, but a scheduler's patch comes here
            return type(self).step(self, *arguments, **more)
        if part.in_patch:  # of a scheduler that was made on an earlier DistributedOptimizer, now closed
            return part.kind.step(self, *arguments, **more)  # type: ignore[attr-defined]
        _metrics.count_step()
        if part.settings.fused:
            return _fused_step(self, *arguments, **more)
        closure = arguments[0] if arguments else more.get("closure")
        if not part.skip and (not callable(closure) or part.reducer.touched):
            part.reducer.complete()
        result = part.inner_step(*arguments, **more)
        part.reducer.step_done()
        return result

    # torch would wrap this step in its profiler and hooks; the inner one has them.
    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, *arguments: Any, **more: Any) -> None:
        """As the optimizer's own."""
        self._psring.kind.zero_grad(self, *arguments, **more)  # type: ignore[attr-defined]
        self._psring.reducer.gradients_cleared()

    def synchronize(self) -> None:
        """Returns when p.grad holds the mean. A backward that reduces has done so
        by itself, so after one this does nothing. Horovod's scripts call it."""
        if not self._psring.settings.fused:
            self._psring.reducer.complete()

    def synchronize_parameters(self) -> None:
        """Makes all workers' parameters the same, with every gradient in them, and the
        buffers of `model=` rank 0's.

        All workers call it, between steps: before an evaluation or a checkpoint
        with sync="ssp" or "async". In other ways they are the same already.
        """
        self._psring.synchronise()

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it, step() applies p.grad as it is."""
        self._psring.skip = True
        try:
            yield
        finally:
            self._psring.skip = False

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, backward() only adds to p.grad; the next one outside of it
        reduces all that has come together."""
        self._psring.reducer.no_sync_depth += 1
        try:
            yield
        finally:
            self._psring.reducer.no_sync_depth -= 1

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From now on, every `passes`-th backward() reduces."""
        self._psring.reducer.passes = whole_passes(passes)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """All ranks add the same. Not with update="fused"."""
        if self._psring.settings.fused:
            remedy = self._psring.settings.local_remedy
            raise ValueError(f'add_param_group() is not supported with update="fused": {remedy}')
        self._psring.reducer.check_restart()
        self._psring.kind.add_param_group(self, param_group)  # type: ignore[attr-defined]
        try:
            self._psring.restart()
        except _lib.PsringError as error:
            if not out_of_step(error):
                raise
            raise type(error)(
                f"rank {_job.rank()} calls add_param_group(), and another rank makes a step instead: "
                f"all ranks add the same group before the same step ({error})"
            ) from None

    def state_dict(self) -> Dict[str, Any]:
        """As the optimizer's own. With update="fused", after the first step, all
        workers call it together: the state is fetched from the library."""
        self._psring.fetch_state()
        try:
            return self._psring.kind.state_dict(self)  # type: ignore[attr-defined,no-any-return]
        finally:
            self._psring.drop_state()

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """As the optimizer's own. With update="fused" after the first step,
        all workers call it; rank 0's state is taken."""
        self._psring.kind.load_state_dict(self, state_dict)  # type: ignore[attr-defined]
        self._psring.is_behind = False
        if not self._psring.settings.fused:
            return
        fused.keep_float32(self, state_dict)  # type: ignore[arg-type]
        if self._psring.reducer.exchange is not None:
            self._psring.restart()

    def close(self) -> None:
        """Ends psring's part: all workers call it, between steps. The optimizer is a
        plain one again, with its state, and the library's memory for it is freed."""
        self._psring.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a DistributedOptimizer cannot be copied or pickled: use its state_dict(), or call its close() first"
        )

    def traffic(self) -> Dict[str, Any]:
        """Bytes sent and received so far, and those of the sent ones that are gradients; {} before the
        first step."""
        exchange = self._psring.reducer.exchange
        return exchange.traffic() if isinstance(exchange, ModelExchange) else {}


def _names(optimizer: Any, named: Optional[List[Tuple[str, Any]]]) -> Callable[[], List[Tuple[str, Any]]]:
    """What lists an optimizer's parameters with their names, in its order."""
    of: Dict[int, str] = {}
    if named is not None:
        if any(not isinstance(item, tuple) or len(item) != 2 for item in named):
            raise ValueError("named_parameters takes (name, parameter) tuples, as model.named_parameters() gives them")
        names = [name for name, _ in named]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise ValueError(f"named_parameters has {twice[0]!r} twice: names must differ")
        of = {id(param): name for name, param in named}
        for g, group in enumerate(optimizer.param_groups):
            for i, param in enumerate(group["params"]):
                if id(param) not in of:
                    raise ValueError(
                        f"parameter {i} of param_groups[{g}] (shape {list(param.shape)}) is not among those of model= "
                        "or named_parameters=. Was the optimizer made before the model was moved, wrapped or replaced? "
                        "Make it from the parameters of the same model"
                    )

    def listed() -> List[Tuple[str, Any]]:
        return [
            (of.get(id(param), f"group{g}.parameter{i}"), param)
            for g, group in enumerate(optimizer_ref().param_groups)  # type: ignore[union-attr]
            for i, param in enumerate(group["params"])
        ]

    optimizer_ref = weakref.ref(optimizer)
    return listed


@_failure.checks_arguments
def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[Tuple[str, torch.nn.Parameter]]] = None,
    compression: Type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    *,
    model: Optional[torch.nn.Module] = None,
    sync: Optional[str] = None,
    staleness: Optional[int] = None,
    update: Optional[str] = None,
    compress: Optional[str] = None,
    bucket_mb: Optional[float] = None,
    scaler: Any = None,
    find_unused: bool = False,
    broadcast_buffers: bool = True,
    overlap: bool = True,
) -> Any:
    """Makes an optimizer of torch's apply everybody's gradients, and returns it.

    It is the same object: schedulers, state and isinstance() stay. Gradients leave
    during backward().

    With update="local" p.grad holds the mean of all ranks' when backward()
    returns, so clipping, GradScaler and any optimizer work unchanged. With
    "fused" servers (ps) or the ring apply SGD, Adam or AdamW themselves; step()
    then waits for the new parameters, and p.grad stays this rank's own. Parameters
    belong to the library then: what a script writes to them after the first step
    is lost, unless opt.load_state_dict() follows, which starts anew from them.

    Args:
        named_parameters: model.named_parameters(), for messages.
        compression: Compression.fp16 or .bf16: the same as compress="fp16".
        backward_passes_per_step: every so many backward() reduce, once. What came
            together is summed, not averaged over the passes, as in Horovod: divide
            the loss by it for a mean.
        op: Average, or Sum.
        gradient_predivide_factor: gradients are divided by it before the sum.
        num_groups, groups: Horovod's; ignored, because gradients travel in buckets.
        sparse_as_dense: sparse gradients are made dense; else their rows are
            gathered.
        process_set: the ranks among which gradients are reduced. For a rank that is
            not in it, this is the plain optimizer.
        model: its names are used, and its parameters and buffers become rank 0's.
        sync, staleness: in mode ps, "bsp", "ssp:K" or "async".
        update: "local", the default where steps are synchronous, or "fused", the
            default and the only way with ssp and async.
        compress: "none", "fp16", "bf16", "int8", "onebit", "topk:F".
        bucket_mb: the size of the buckets in which gradients leave; 25. The last ones of
            a step may be smaller.
        scaler: with update="fused", the GradScaler that will call step().
        broadcast_buffers: with model=, its buffers (the running mean of a batch norm, say)
            become rank 0's with every synchronous step that exchanges gradients; with ssp
            and async in synchronize_parameters(). False: each rank keeps its own.
        overlap: False: with update="fused" gradients leave in step(), and not during
            backward(), so that the script can clip or change its own before. With
            "local" it clips the mean, which needs nothing.
        find_unused: p.grad is None where no rank used a parameter (else zeros); one
            small allreduce more in each step. It needs zero_grad(set_to_none=True).

    Errors: names, shapes, dtypes or settings that differ between ranks, with both
    ranks and the first difference.
    """
    job = _job.current()
    check_optimizer(optimizer, "DistributedOptimizer")
    if hasattr(type(optimizer), "skip_synchronize"):
        raise ValueError("this optimizer is a DistributedOptimizer already")
    if model is not None and not isinstance(model, torch.nn.Module):
        raise TypeError(f"DistributedOptimizer(model={model!r}): it is a torch.nn.Module")
    settings = make_settings(
        job, type(optimizer), op=op, compression=compression, compress=compress, process_set=process_set,
        predivide=gradient_predivide_factor, passes=backward_passes_per_step, sync=sync, staleness=staleness,
        update=update, bucket_mb=bucket_mb, scaler=scaler, sparse_as_dense=sparse_as_dense, find_unused=find_unused,
        broadcast_buffers=broadcast_buffers, overlap=overlap,
    )  # fmt: skip
    if not process_set.included():
        optimizer.__class__ = _class_with(_Local, type(optimizer))  # type: ignore[arg-type]
        return optimizer
    named = list(named_parameters) if named_parameters is not None else None
    if model is not None and named is None:
        named = list(model.named_parameters())
    listed = _names(optimizer, named)
    kind = type(optimizer)
    if model is not None:
        warn_of_torchs_norm(model, process_set)
    buffers = Buffers(model, process_set) if model is not None else None
    part = Part(optimizer, kind, settings, listed, buffers)
    try:
        _start_alike(model, buffers, part)
    except BaseException:
        part.reducer.close()  # the optimizer stays a plain one
        raise
    patched = optimizer.__dict__.pop("step", None)
    optimizer.__class__ = _class_with(_Distributed, kind)  # type: ignore[arg-type]
    optimizer._psring = part  # type: ignore[attr-defined]
    if patched is not None:
        optimizer.step = part.keep_patch(patched)  # type: ignore[method-assign]
    if settings.fused:
        optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]
    return optimizer


def _start_alike(model: Optional[torch.nn.Module], buffers: Optional[Buffers], part: Part) -> None:
    """The model's parameters and buffers become those of the set's first rank."""
    if model is None:
        return
    everybody = part.settings.process_set
    broadcast_parameters(model.state_dict(), everybody.ranks[0], everybody)
    if buffers is not None:
        buffers.broadcast(part.name + ".buffers")  # those that state_dict() does not have, too


class _Local:
    """For a rank outside of the process set: the methods, without effect."""

    def synchronize(self) -> None:
        pass

    synchronize_parameters = synchronize

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        yield

    skip_synchronize = no_sync

    def set_backward_passes_per_step(self, passes: int) -> None:
        pass

    def traffic(self) -> Dict[str, Any]:
        return {}

    def close(self) -> None:
        self.__class__ = type(self).__bases__[0]  # type: ignore[assignment]


@functools.lru_cache(maxsize=None)
def _class_with(methods: type, kind: type) -> type:
    """`kind` with these methods before its own. They are no base class: Python changes the class of an object only to one of
    the same layout, which the first base decides, and that of some optimizers is abc.ABC or typing.Generic."""
    names = {name: value for name, value in vars(methods).items() if name not in ("__dict__", "__weakref__", "__doc__")}
    return type("Distributed" + kind.__name__, (kind,), names)
