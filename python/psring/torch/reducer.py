"""When gradients go: hooks count them during backward, and a bucket leaves as soon
as all of its gradients are there.

Buckets leave in the order of their numbers, so that all ranks submit the same
sequence. The first backward only takes down the order in which gradients become
ready; at its end rank 0's order cuts the buckets, and all of them leave at once.

A backward that reduces ends with a callback of the autograd engine, which adds
what is missing: parameters that this backward did not use contribute what their
p.grad holds, or zeros.
"""

import json
import threading
import weakref
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch

from .. import _job, _lib
from .. import collectives as memory
from ..collectives import Max
from ._tensors import copy_all, digest, warn_once
from .backward_end import NO_BACKWARD, BackwardEnd, current_backward
from .collectives import allreduce_
from .gradient_exchange import Entry, ModelExchange, is_sampled
from .settings import Settings
from .sparse import reduce_sparse

# Whether a module's load_state_dict() and .to() swap its parameters; torch 2.3 and newer.
_swaps: Callable[[], bool] = getattr(torch.__future__, "get_swap_module_params_on_conversion", lambda: False)

IDLE, COLLECTING, DONE = "idle", "collecting", "done"

_all: "weakref.WeakSet[Reducer]" = weakref.WeakSet()


def _remove_all_hooks() -> None:
    """Parameters may have an optimizer of the next job."""
    for reducer in list(_all):
        reducer.remove_hooks()


_job.at_shutdown(_remove_all_hooks)


def reducers_in_use() -> "List[Reducer]":
    """Those of optimizers whose gradients have been exchanged, and may be again."""
    return [reducer for reducer in list(_all) if reducer.exchange is not None and reducer.entries and reducer._in_use()]


def _value(grad: torch.Tensor) -> torch.Tensor:
    """Without its graph, which only backward(create_graph=True) makes: each hook would pay for detach()."""
    return grad.detach() if grad.requires_grad else grad


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
        # What compression has left out of earlier sums comes with later ones.
        self._keeps_error = settings.compress != "none"
        self._frozen: List[str] = []  # then on all ranks
        self._sparse_as_dense, self._find_unused = settings.sparse_as_dense, settings.find_unused
        self._before_submit, self._after_finish, self._in_use = before_submit, after_finish, in_use
        self._on_unused = on_unused
        self.no_sync_depth = 0
        # With "fused" all begin with rank 0's. Within no_sync() each may perturb its own for a while (SAM).
        self._compares_parameters = not settings.fused
        self.touched = False  # since the last step, by a backward
        self._sums_remain = False  # op=Sum: in p.grad, unless the model has cleared it
        self.state = IDLE
        self._pass = 0
        self._end = BackwardEnd(self._on_backward_end)
        self._stepped_in = NO_BACKWARD  # the backward in which the last step was made, by a hook of the script's
        self._order: Dict[int, None] = {}
        self._left: List[int] = []
        self._bucket_sizes: List[int] = []
        self._next_bucket = 0
        self._waiting: List[List[Tuple[torch.Tensor, torch.Tensor]]] = []
        self._lock = threading.RLock()
        self._hooks: List[Any] = []
        self._insides = [entry.param._cdata for entry in self.entries]
        self._alone = alone
        for entry in self.entries if not alone else ():
            self._register(entry)
        _all.add(self)

    # ---- Hooks ---------------------------------------------------------------

    def _register(self, entry: Entry) -> None:
        # Weakly, because the parameter would keep the reducer, and so itself, alive.
        reducer, index = weakref.ref(self), entry.index

        def hook(*_: Any) -> None:
            alive = reducer()
            if alive is not None and alive._in_use():
                alive._on_gradient(alive.entries[index])

        if hasattr(entry.param, "register_post_accumulate_grad_hook"):
            self._hooks.append(entry.param.register_post_accumulate_grad_hook(hook))
        else:
            node = entry.param.expand_as(entry.param).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
            self._hooks.append(node.register_hook(hook))
            self._hooks.append(node)  # lives as long as somebody holds it

    def _find_swapped(self) -> List[Entry]:
        """Parameters that have got another tensor's insides since the last look, without hooks, as load_state_dict() and
        .to() give them after torch.__future__.set_swap_module_params_on_conversion(True). They have their hooks again."""
        insides = [entry.param._cdata for entry in self.entries]
        if insides == self._insides or self._alone:
            return []
        swapped = [entry for entry, old, new in zip(self.entries, self._insides, insides) if old != new]
        for entry in swapped:  # Python's list of them has stayed
            entry.param._post_accumulate_grad_hooks = entry.param._post_accumulate_grad_hooks
        self._insides = insides
        return swapped

    def _check_hooks(self) -> None:
        """Raises where p.grad was not the mean when backward() returned. Where gradients leave later than they could, or
        of some parameters, that is all."""
        swapped = [] if self._fused else self._find_swapped()
        if any(entry.param.grad is not None for entry in swapped):
            raise RuntimeError(
                f"{swapped[0].name} was swapped, as load_state_dict() and .to() do after "
                "torch.__future__.set_swap_module_params_on_conversion(True), and psring missed its gradient, because a swap "
                "removes hooks: call opt.zero_grad() between the swap and backward()"
            )

    def remove_hooks(self) -> None:
        for hook in self._hooks:
            if hasattr(hook, "remove"):
                hook.remove()
        self._hooks = []

    def _on_gradient(self, entry: Entry) -> None:
        with self._lock:
            self.touched = True
            if self.exchange is None:
                self._order.setdefault(entry.index)
            if self.state == DONE:
                self._start_over()
            if self.no_sync_depth:
                self._compares_parameters = False
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
        self.state = COLLECTING
        for entry in self.entries:
            entry.ready, entry.version = False, -1
        self._next_bucket = 0
        self._left = list(self._bucket_sizes)
        self._waiting = [[] for _ in self._bucket_sizes]

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
        if self.exchange is not None:
            self._hand_over(entry)

    def _hand_over(self, entry: Entry) -> None:
        """Copies one gradient to its place, and submits what is full. On a GPU, where
        launching a copy takes longer than a small one itself, a bucket's are copied when
        the last of them is there."""
        if entry.sparse_dim:
            return
        grad, place = entry.param.grad, entry.gradient
        if place is None:
            raise _lib.PsringError(
                "the job in which this DistributedOptimizer was made has ended: make a new one after init()"
            )
        self.exchange.order()
        if grad is None:
            place.zero_()
        elif self.exchange.on_gpu and grad.layout == torch.strided:
            self._waiting[entry.bucket].append((place, _value(grad)))
            entry.remember(grad)
        else:
            if grad.layout != torch.strided:
                if not self._sparse_as_dense:
                    warn_once(
                        f"the gradient of {entry.name} is sparse, and was not in the first backward(): "
                        "psring makes it dense"
                    )
            dense = grad if grad.layout == torch.strided else grad.to_dense()
            place.copy_(_value(dense))
            if self._prescale != 1.0:
                place.mul_(self._prescale)
            entry.remember(grad)
        self._left[entry.bucket] -= 1
        if self._left[entry.bucket] == 0:
            self._copy_waiting(entry.bucket)
        while self._next_bucket < len(self._left) and self._left[self._next_bucket] == 0:
            self.exchange.submit(self._next_bucket)
            self._next_bucket += 1

    def _copy_waiting(self, bucket: int) -> None:
        waiting, self._waiting[bucket] = self._waiting[bucket], []
        copy_all(waiting)
        if waiting and self._prescale != 1.0:
            torch._foreach_mul_([place for place, _ in waiting], self._prescale)

    def complete(self) -> None:
        """Every bucket leaves; unless fused, p.grad becomes the mean. Blocks then."""
        with self._lock, torch.no_grad():
            if self.state == DONE or self._alone:
                return
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
            for entry in pending:
                self._hand_over(entry)
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
                self._agree_on_frozen([entry.name for entry in frozen])
                self._drop_frozen(frozen)
            self.state = DONE

    def _drop_frozen(self, frozen: List[Entry]) -> None:
        """p.grad of what is frozen becomes None, as torch's optimizers know it; their momentum would move it where
        p.grad is zeros. Others may still train it, which shows, unless what there is may be the error of a
        compression."""
        held = [e for e in frozen if e.param.grad is not None and e.param.grad.layout == torch.strided]
        used = [False] * len(held)
        if held and not self._keeps_error:
            answers = [e.param.grad.any() for e in held]  # read together: that waits for the GPU
            used = torch.stack([answer.to(answers[0].device) for answer in answers]).tolist()
        for entry, others_train_it in zip(held, used):
            if not others_train_it:
                entry.param.grad = None

    def _agree_on_frozen(self, names: List[str]) -> None:
        """Where compression hides whether another rank still trains them. One that does is not here."""
        if self._keeps_error and names != self._frozen:
            memory.agree([f"frozen: {', '.join(names)}"], self.name + ".frozen", self.process_set)
            self._frozen = names

    def _open(self) -> None:
        """Agrees on the order of tensors, on which are sparse, and on where they lie."""
        sparse = {}
        for entry in self.entries:
            entry.dtype = entry.param.dtype  # the script may have converted it since
            grad = entry.param.grad
            if grad is not None and grad.layout != torch.strided and not self._sparse_as_dense:
                sparse[entry.index] = grad.sparse_dim()
        order: Any = list(self._order) if self.process_set.rank() == 0 else None
        agenda = {"order": order, "sparse": list(sparse.items())}
        if self._compares_parameters:
            agenda["parameters"] = digest([entry.param for entry in self.entries])
        mine = json.dumps({**agenda, "place": self._place(self.entries)}).encode()
        everybody = [json.loads(text) for text in memory.allgather_bytes(mine, self.name + ".order", self.process_set)]
        mine_are, firsts = agenda.get("parameters"), everybody[0].get("parameters")
        if len({other.get("parameters") for other in everybody} - {None}) > 1:
            self._compares_parameters = False
        if None not in (mine_are, firsts) and mine_are != firsts:
            warn_once(
                f"the parameters of this rank are not those of rank {self.process_set.ranks[0]} as gradients are exchanged "
                "for the first time, and the same gradients keep them apart: call broadcast_parameters(model.state_dict(), root_rank=0) after "
                "the last change on one rank alone, such as a checkpoint that rank 0 loads. (Embedding(max_norm=...) "
                "changes its parameters on each rank by itself)"
            )
        for other in everybody:
            for index, sparse_dim in other["sparse"]:
                self.entries[index].sparse_dim = sparse_dim
        sparse_entry = next((e for e in self.entries if e.sparse_dim), None)
        if self._fused and sparse_entry is not None:
            raise ValueError(
                f'the gradient of {sparse_entry.name} is sparse, which update="fused" does not take: '
                f"pass sparse_as_dense=True, or {self._local_remedy}"
            )
        order = everybody[0]["order"]
        ready = set(order)
        unused = [i for i in range(len(self.entries)) if i not in ready]
        dense = [self.entries[i] for i in order + unused if not self.entries[i].sparse_dim]
        self.exchange = self._make_exchange(dense, [other["place"] for other in everybody])
        self._bucket_sizes = [0] * self.exchange.num_buckets
        for entry in dense:
            self._bucket_sizes[entry.bucket] += 1
        self._left = list(self._bucket_sizes)
        self._waiting = [[] for _ in self._bucket_sizes]
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
        self._compare_parameters()
        if self._postscale != 1.0:
            self.exchange.results.mul_(self._postscale)
        self._sums_remain = not self._average
        for entry in self.entries:
            if not entry.sparse_dim:
                self._take_result(entry)
        for entry in self.entries:
            if entry.sparse_dim:
                reduce_sparse(entry, self.name, self.process_set, self._average)
        if self._find_unused:
            bits = torch.tensor(used, dtype=torch.uint8, device="cpu")
            allreduce_(bits, name=self.name + ".used", op=Max, process_set=self.process_set)
            for entry, anybody in zip(self.entries, bits.tolist()):
                if not anybody:
                    entry.param.grad = None

    def _compare_parameters(self) -> None:
        """Of an earlier step, as what all ranks told of them has come with the gradients."""
        exchange = self.exchange
        if isinstance(exchange, ModelExchange) and not exchange.parameters_agree():
            self._compares_parameters = False
            warn_once(
                f"the workers' parameters are not the same any more after step {exchange.steps - 1}, and the same gradients "
                "keep them apart. Something besides these changes them: random numbers of the optimizer (seed them alike "
                "on all workers), a change of p.grad on each worker by itself, or Embedding(max_norm=...). Processors of "
                "different kinds round differently, too"
            )

    def _is_anothers(self, entry: Entry) -> bool:
        """Whether another optimizer takes the parameter's gradient during backward, too."""
        others = [other for other in list(_all) if other is not self and other._hooks and other._in_use()]
        return any(theirs.param is entry.param for other in others for theirs in other.entries)

    def _tell_unused(self, used: List[bool]) -> None:
        mine = [e for e, u in zip(self.entries, used) if not u and e.result is not None]
        nobodys = [entry for entry in mine if not entry.result.any()]
        if nobodys:
            self._on_unused(nobodys)

    def _take_result(self, entry: Entry) -> None:
        param, result = entry.param, entry.result
        assert result is not None
        if entry.shares_result():
            # A tensor and a count of writes of its own: p.grad.data = ... may turn it to other memory, as
            # model.half() does.
            param.grad = result.data
        elif param.grad is None or param.grad.layout != torch.strided:
            param.grad = result.to(device=param.device, dtype=param.dtype, copy=True)
        else:
            param.grad.copy_(result)
        entry.hands_out(param.grad)

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
            if _swaps():
                self._find_swapped()
            if self._end.is_awaited() or self.state == COLLECTING:
                self._give_up_backward()
            if self.state != DONE:
                self._pass, self.touched = 0, False

    def _give_up_backward(self) -> None:
        """The last backward, or its end, has raised an error."""
        if self.state == COLLECTING and self._next_bucket > 0:
            raise RuntimeError(
                "backward() failed after some of its gradients had left, and the other ranks wait for the "
                "rest of this step: let the error end the script, and resume the job from a checkpoint"
            )
        self._end.forget()
        if self.state == COLLECTING:
            self.state = IDLE

    def step_done(self) -> None:
        exchange = self.exchange
        if self._compares_parameters and isinstance(exchange, ModelExchange) and exchange.counts_ranks:
            if is_sampled(exchange.steps):
                exchange.told_parameters = digest([entry.param for entry in self.entries])
        self.state, self.touched, self._pass = IDLE, False, 0
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
            self.exchange = None


__all__ = ["Reducer"]
