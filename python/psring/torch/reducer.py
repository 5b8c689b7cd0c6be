"""When gradients go: hooks tell of each during backward, and a bucket leaves as soon
as all of its gradients are there.

Buckets leave in the order of their numbers, so that all ranks submit the same
sequence. The first backward only takes down the order in which gradients become
ready; at its end rank 0's order cuts the buckets, and all of them leave at once.

A backward that reduces ends with a callback of the autograd engine, which adds
what is missing: parameters that this backward did not use contribute what their
p.grad holds, or zeros.
"""

import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _job
from ..collectives import Max
from ._tensors import warn_once
from .agenda import agree_on_agenda
from .backward_end import NO_BACKWARD, BackwardEnd, current_backward
from .bucket_filler import BucketFiller
from .collectives import allreduce_
from .entry import Entry
from .frozen import FrozenParameters
from .gradient_exchange import ModelExchange
from .hooks import GradientHooks, modules_swap
from .parameter_watch import ParameterWatch
from .settings import Settings
from .sparse import reduce_sparse

IDLE, COLLECTING, DONE = "idle", "collecting", "done"

_all: "weakref.WeakSet[Reducer]" = weakref.WeakSet()


def _remove_all_hooks() -> None:
    """Parameters may have an optimizer of the next job."""
    for reducer in list(_all):
        reducer.remove_hooks()


_job.at_shutdown(_remove_all_hooks)


def reducers_in_use() -> "List[Reducer]":
    """Those of optimizers whose gradients have been exchanged, and may be again."""
    return [reducer for reducer in list(_all) if reducer.exchange is not None and reducer.entries and reducer.in_use()]


class Reducer:
    """The gradients of one optimizer's parameters. Used by the thread that trains
    and, within backward, by autograd's.

    Args:
        name: of the exchange, the same on all ranks.
        named: the parameters that need gradients.
        place: called before it: what all ranks are told of where gradients lie.
        make_exchange: called once, with the entries in backward's order and every
            rank's place.
        settings: of the optimizer.
        before_submit: called before the first submit of each step.
        after_finish: unless fused, called when all of a step's means are there.
        on_unused: unless find_unused, called in the first step, for parameters that no
            rank used; if fused, that this rank did not use.
        in_use: false once the optimizer is gone; hooks then do nothing.
        alone: the mean over all ranks is this rank's own gradient, as it is.
    """

    def __init__(
        self,
        name: str,
        named: Sequence[Tuple[str, torch.nn.Parameter]],
        settings: Settings,
        place: Callable[[List[Entry]], str],
        make_exchange: Callable[[List[Entry], List[str]], Any],
        *,
        before_submit: Callable[[], None],
        after_finish: Callable[[], None],
        on_unused: Callable[[List[Entry]], None],
        in_use: Callable[[], bool],
        alone: bool,
    ):
        self.name, self.process_set, self.passes = name, settings.process_set, settings.passes
        self.exchange: Any = None
        self.entries = [Entry(n, p, i) for i, (n, p) in enumerate(named)]
        self._place, self._make_exchange = place, make_exchange
        self._fused, self._deferred = settings.fused, settings.deferred
        self._local_remedy = settings.local_remedy
        self._average, self._prescale, self._postscale = settings.average, settings.prescale, settings.postscale
        self._frozen = FrozenParameters(name, settings.process_set, keeps_error=settings.compress != "none")
        self._sparse_as_dense, self._find_unused = settings.sparse_as_dense, settings.find_unused
        self._before_submit, self._after_finish, self.in_use = before_submit, after_finish, in_use
        self._on_unused = on_unused
        self.no_sync_depth = 0
        self._watch = ParameterWatch(self.entries, watches=not settings.fused)  # "fused": all begin with rank 0's
        self.touched = False  # since the last step, by a backward
        self._cleared = False  # by opt.zero_grad(), after the last backward has reduced
        self._sums_remain = False  # op=Sum: in p.grad, unless the model has cleared it
        self.state = IDLE
        self._pass = 0
        self._end = BackwardEnd(self._on_backward_end)
        self._stepped_in = NO_BACKWARD  # the backward in which the last step was made, by a hook of the script's
        self._order: Dict[int, None] = {}
        self._buckets: Optional[BucketFiller] = None
        self._lock = threading.RLock()
        self._alone = alone
        hooked = self.entries if not alone or self._sparse_as_dense else []
        self._hooks = GradientHooks(hooked, weakref.ref(self))
        _all.add(self)

    # ---- Hooks ---------------------------------------------------------------

    def _check_hooks(self) -> None:
        """Raises where p.grad was not the mean when backward() returned. Where gradients leave later than they could, or
        of some parameters, that is all."""
        swapped = [] if self._fused else self._hooks.restore_swapped()
        if any(entry.param.grad is not None for entry in swapped):
            raise RuntimeError(
                f"{swapped[0].name} was swapped, as load_state_dict() and .to() do after "
                "torch.__future__.set_swap_module_params_on_conversion(True), and psring missed its gradient, because a swap "
                "removes hooks: call opt.zero_grad() between the swap and backward()"
            )

    def remove_hooks(self) -> None:
        self._hooks.remove()

    def on_gradient(self, entry: Entry) -> None:
        if self._alone:
            entry.make_dense()
            return
        with self._lock:
            self.touched = True
            if self.exchange is None:
                self._order.setdefault(entry.index)
            if self.state == DONE:
                self._start_over()
            if self.no_sync_depth:
                self._watch.end()  # a script may perturb its own for a while (SAM)
            if self.no_sync_depth or self._deferred:
                return
            if self._stepped_in != NO_BACKWARD and self._stepped_in == current_backward():
                raise RuntimeError(
                    f"step() ran within backward() before psring had the gradient of {entry.name}: register the hook "
                    "that calls step() after DistributedOptimizer is made, because hooks run in the order in which they "
                    "were registered"
                )
            if self._end.has_failed():
                self._begin_after_failure()
            self._end.await_it()
            if self._pass + 1 >= self.passes:
                self._collect(entry)

    def _begin_after_failure(self) -> None:
        """The last backward failed, and opt.zero_grad() has not been called since, but perhaps the model's."""
        if self._pass > 0:
            raise RuntimeError(
                f"the last backward() failed, in pass {self._pass + 1} of {self.passes}, and psring cannot see whether the "
                "passes before it still count: after a backward() that failed, call opt.zero_grad(), and begin with the "
                "first pass again"
            )
        self._give_up_backward()

    def _start_over(self) -> None:
        """A backward after one that has reduced, without a step between them."""
        if self._fused:
            raise RuntimeError(
                'backward() ran again before step(). With update="fused" the gradients of the '
                "first one have left, also those that backward(inputs=...) left out, as zeros: accumulate under "
                "opt.no_sync(), set backward_passes_per_step, pass overlap=False to DistributedOptimizer, or "
                f"{self._local_remedy}. A network that another "
                "one's loss passes through needs requires_grad_(False) meanwhile. An optimizer that "
                "another one follows ends with its close()"
            )
        if self._holds_sums():
            raise RuntimeError(
                "backward() ran again before step() and would sum what is already a sum over all "
                "ranks: accumulate under opt.no_sync(), set backward_passes_per_step, or use op=Average. "
                "Call opt.zero_grad() where a step is skipped"
            )
        # p.grad is new, or a mean, equal on all ranks, to which this backward adds: its mean
        # over the ranks is the right sum.
        self.state = IDLE

    def _holds_sums(self) -> bool:
        return self._sums_remain and any(map(self._may_hold_sum, self.entries))

    @staticmethod
    def _may_hold_sum(entry: Entry) -> bool:
        """Whether p.grad may still be a sum over all ranks. Of a sparse one nobody can tell."""
        if entry.result is None:
            return entry.param.grad is not None
        return entry.holds_result() or entry.holds_copy()

    def _on_backward_end(self) -> None:
        with self._lock:
            self._end.forget()
            if self.state == COLLECTING:
                self.complete()
            else:
                self._pass += 1

    # ---- One step ------------------------------------------------------------

    def _begin_collecting(self) -> None:
        if any(e.param.is_cuda for e in self.entries) and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "backward() runs while a CUDA graph is captured, where psring cannot exchange gradients: capture forward "
                "and backward by torch.cuda.make_graphed_callables, before DistributedOptimizer is made, and leave step() "
                "out of the graph"
            )
        self.state, self._cleared = COLLECTING, False
        for entry in self.entries:
            entry.ready, entry.version = False, -1
        if self._buckets is not None:
            self._buckets.begin()

    def _own_gradients(self) -> None:
        """Before the first submit: gradients still in the exchange's memory (where
        zero_grad(set_to_none=False) leaves them) move out of it. Raises where a parameter has been converted."""
        for entry in self.entries:
            if entry.param.dtype is not entry.dtype:
                raise TypeError(
                    f"{entry.name} was {entry.dtype} in the first step, and is {entry.param.dtype} now: convert the model "
                    "before DistributedOptimizer is made; here, convert it back, or call opt.close() on all workers and "
                    "make a new DistributedOptimizer"
                )
            entry.keep_apart()
            if not entry.ready and entry.holds_result():
                entry.param.grad = entry.param.grad.clone()  # type: ignore[union-attr]

    def _collect(self, entry: Entry) -> None:
        if self.state != COLLECTING:
            self._begin_collecting()
            if self.exchange is not None:
                entry.ready = True
                self._own_gradients()
                self._before_submit()
                entry.ready = False
        if entry.ready:
            raise RuntimeError(
                f"the gradient of {entry.name} became ready twice in one backward(): checkpoints "
                "that share parameters need use_reentrant=False; after a backward() that failed, "
                "call opt.zero_grad()"
            )
        entry.ready = True
        if self._buckets is not None:
            self._buckets.hand_over(entry)

    def complete(self) -> None:
        """Every bucket leaves; unless fused, p.grad becomes the mean. Blocks then."""
        with self._lock, torch.no_grad():
            if self._alone or (self.state == DONE and not self._has_new_gradients()):
                return
            if self.state == DONE:
                self.state = IDLE
            if self.state == IDLE:
                self._check_hooks()
                self._begin_collecting()
                if self.exchange is not None:
                    self._own_gradients()
                    self._before_submit()
            used = [e.ready or e.param.grad is not None for e in self.entries]
            first = self.exchange is None
            if first:
                self._open()
                pending = self.entries
            else:
                pending = [e for e in self.entries if not e.ready]
            assert self._buckets is not None
            for entry in pending:
                self._buckets.hand_over(entry)
                entry.ready = True
            self._pass = 0
            frozen = [e for e in pending if not e.param.requires_grad]
            if self._fused:
                if frozen:
                    warn_once(
                        f'{frozen[0].name} has been frozen, but with update="fused" momentum and weight decay '
                        "still move it: freeze parameters before DistributedOptimizer, or make a new one"
                    )
                if first:
                    self._on_unused([e for e, u in zip(self.entries, used) if not u])
            else:
                self._finish(used)
                if first and not self._find_unused:
                    self._tell_unused(used)
                self._frozen.drop_gradients(frozen)
            self.state = DONE

    def _has_new_gradients(self) -> bool:
        """Whether a script has set gradients itself since opt.zero_grad() cleared those of the last backward."""
        return self._cleared and any(
            e.param.grad is not None and (not (e.holds_result() or e.holds_copy()) or bool(e.param.grad.any()))
            for e in self.entries
        )

    def _open(self) -> None:
        """Agrees with the others on what the exchange is made of, and makes it."""
        agenda = agree_on_agenda(
            self.entries, list(self._order), self._place(self.entries), self._watch, self.name, self.process_set,
            self._sparse_as_dense,
        )  # fmt: skip
        sparse_entry = next((e for e in self.entries if e.sparse_dim), None)
        if self._fused and sparse_entry is not None:
            raise ValueError(
                f'the gradient of {sparse_entry.name} is sparse, which update="fused" does not take: '
                f"pass sparse_as_dense=True, or {self._local_remedy}"
            )
        self.exchange = self._make_exchange(agenda.dense, agenda.places)
        self._buckets = BucketFiller(self.exchange, agenda.dense, self._prescale, makes_dense=self._sparse_as_dense)
        self._order.clear()
        self._before_submit()

    def _finish(self, used: List[bool]) -> None:
        """p.grad becomes the mean of all ranks'."""
        # Of gradients in the exchange's memory nobody can tell: they count each other's changes.
        changed = next((e for e in self.entries if e.has_changed() and not e.holds_result()), None)
        if changed is not None:
            if self._is_anothers(changed):
                raise RuntimeError(
                    f"{changed.name} belongs to two DistributedOptimizers, and both exchange its gradient: end the "
                    "former one with its close() before the next one is made"
                )
            raise RuntimeError(
                f"the gradient of {changed.name} was changed during backward(), after it had left: register a hook "
                "that changes gradients before DistributedOptimizer is made, or change them when backward() is over"
            )
        self.exchange.finish()
        self.state = IDLE  # where what follows raises an error, that has ended the step, and the next one may come
        self._after_finish()
        self._watch.compare(self.exchange)
        if self._postscale != 1.0:
            self.exchange.results.mul_(self._postscale)
        self._sums_remain = not self._average
        for entry in self.entries:
            if not entry.sparse_dim:
                entry.take_result()
        for entry in self.entries:
            if entry.sparse_dim:
                reduce_sparse(entry, self.name, self.process_set, self._average)
        if self._find_unused:
            bits = torch.tensor(used, dtype=torch.uint8, device="cpu")
            allreduce_(bits, name=self.name + ".used", op=Max, process_set=self.process_set)
            for entry, anybody in zip(self.entries, bits.tolist()):
                if not anybody:
                    entry.param.grad = None

    def _is_anothers(self, entry: Entry) -> bool:
        """Whether another optimizer takes the parameter's gradient during backward, too."""
        others = [other for other in list(_all) if other is not self and other._hooks.are_there() and other.in_use()]
        return any(theirs.param is entry.param for other in others for theirs in other.entries)

    def _tell_unused(self, used: List[bool]) -> None:
        mine = [entry for entry, is_used in zip(self.entries, used) if not is_used]
        nobodys = [entry for entry in mine if entry.result is not None and not entry.result.any()]
        if nobodys:
            self._on_unused(nobodys)

    # ---- For the optimizer ---------------------------------------------------

    def check_untouched(self) -> None:
        """Fused: an error where gradients changed after they had left."""
        for entry in self.entries:
            if entry.has_changed():
                raise RuntimeError(
                    f"the gradient of {entry.name} was changed after backward(), but with "
                    'update="fused" it had left during backward(): to clip or scale it before it leaves, pass '
                    "overlap=False to DistributedOptimizer"
                )

    def gradients_cleared(self) -> None:
        """zero_grad() of the optimizer has been called, perhaps in place of a step."""
        self._sums_remain = False
        with self._lock:
            if modules_swap():
                self._hooks.restore_swapped()
            if self._end.is_awaited() or self.state == COLLECTING:
                self._give_up_backward()
            if self.state != DONE:
                self._pass, self.touched = 0, False
            self._cleared = self.state == DONE and not self._fused

    def _give_up_backward(self) -> None:
        """The last backward, or its end, has raised an error."""
        if self.state == COLLECTING and self._buckets is not None and self._buckets.has_submitted():
            raise RuntimeError(
                "backward() failed after some of its gradients had left, and the other ranks wait for the "
                "rest of this step: let the error end the script, and resume the job from a checkpoint"
            )
        self._end.forget()
        if self.state == COLLECTING:
            self.state = IDLE

    def step_done(self) -> None:
        self._watch.tell(self.exchange)
        self.state, self.touched, self._pass, self._cleared = IDLE, False, 0, False
        self._stepped_in = current_backward()
        self._end.forget()
        for entry in self.entries:
            entry.version = -1

    def check_restart(self) -> None:
        """An error where a new reducer would sum what is a sum over all ranks already."""
        if self.state == DONE and self._holds_sums():
            raise RuntimeError(
                "add_param_group() between backward() and step(): with op=Sum the gradients, which are sums over all "
                "ranks already, would be summed again. Call it after step()"
            )

    def join_obstacle(self) -> str:
        """What join() cannot take part in; "" where it can."""
        if self.process_set._wire() is not None:
            return "an optimizer of a process set"
        if self._find_unused:
            return "an optimizer with find_unused=True"
        if any(entry.sparse_dim for entry in self.entries):
            return "an optimizer with sparse gradients"
        if not isinstance(self.exchange, ModelExchange):
            return 'an optimizer in mode "ddp"'
        if not self.exchange.counts_ranks:
            return 'an optimizer with update="fused"' if self._fused else "an optimizer with compression"
        return ""

    def move_gradients_out(self) -> None:
        """Out of the exchange's memory, which takes other means before this rank has new gradients: p.grad, and
        what a script has kept."""
        for entry in self.entries:
            grad = entry.param.grad
            came_back = entry.holds_result() or entry.holds_copy()
            entry.keep_apart()
            if grad is not None and entry.holds_result():
                grad.data = grad.data.clone()
            if grad is not None and came_back:
                entry.hands_out(grad)

    def close(self) -> None:
        """Removes the hooks and closes the exchange, which all ranks do."""
        self.remove_hooks()
        if self.exchange is not None:
            self.exchange.close()
            self.exchange = self._buckets = None


__all__ = ["Reducer"]
