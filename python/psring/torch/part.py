"""psring's part of a DistributedOptimizer: its exchange, and its steps."""

import ctypes
import functools
import weakref
import zlib
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from .. import _job, _lib, _metrics
from .. import collectives as memory
from .._models import is_sampled, next_name
from ..collectives import Average, Max, agree
from ..process_sets import global_process_set
from . import fused, gpu
from ._tensors import NO_DATA, describe_layout, digest, warn_of_copies, warn_once
from .buffers import Buffers
from .collectives import allreduce_
from .entry import Entry
from .gradient_exchange import BucketExchange, ModelExchange
from .reducer import DONE, Reducer
from .same_settings import SameSettings
from .settings import Settings


def _crc(groups: List[Dict[str, Any]]) -> int:
    """Of the parameters of an optimizer's param_groups."""
    crc = 0
    for param in (param for group in groups for param in group["params"]):
        values = param.detach().cpu().contiguous()
        size = values.numel() * values.element_size()
        crc = zlib.crc32((ctypes.c_ubyte * size).from_address(values.data_ptr()), crc)
    return crc


class Part:
    """psring's part of one optimizer; the optimizer owns it."""

    def __init__(
        self,
        optimizer: Any,
        kind: type,
        settings: Settings,
        named: Callable[[], List[Tuple[str, Any]]],
        buffers: Optional[Buffers],
    ):
        self._optimizer: Callable[[], Any] = weakref.ref(optimizer)
        self._buffers = buffers
        self.kind, self.settings, self._named = kind, settings, named
        self.skip = False
        self._patched_step: Optional[Callable[..., Any]] = None
        self.in_patch = False  # which may come back to the outer step
        self._same = SameSettings(self._optimizer, settings.process_set)
        self.is_behind = False  # others have made steps without this rank, and its state is not theirs yet
        self._taken: Optional[int] = None  # digest of the parameters as the library's came; None: not sampled
        self._has_restarted = False
        self._options: List[Dict[str, Any]] = []
        self._rates: List[float] = []
        self._gpu: Optional[torch.device] = None  # in whose memory gradients are exchanged
        self.reducer = self._make_reducer()
        _job.current().has_optimizer = True
        self._tell()

    def _tell(self) -> None:
        """The metrics learn of the model, and at the end of its last bits."""
        total = sum(p.numel() for _, p in self._named())
        _metrics.tell_model(total, functools.partial(_crc, self.optimizer.param_groups), self.optimizer)
        if _metrics.wanted():
            _metrics.at_end(gpu.memory_figures)

    @property
    def optimizer(self) -> Any:
        return self._optimizer()

    def _make_reducer(self) -> Reducer:
        settings = self.settings
        self.name = next_name(settings.process_set)
        listed = self._named()
        named = _trainable(listed)
        self._held = {id(p) for _, p in listed}
        self._known = {id(p) for _, p in listed if p.requires_grad}
        if settings.fused:
            self._current_options()
            fused.check_apart(named, settings.local_remedy)
        agree(
            settings.agreed(self.kind)
            + [f"tensor {i}, {n} {describe_layout(p)}" for i, (n, p) in enumerate(named)]
            + (self._buffers.described() if self._buffers else []),
            self.name + ".names",
            settings.process_set,
        )
        optimizer = self._optimizer  # what the Reducer calls must not hold this object
        return Reducer(
            self.name, named, settings, self._place, self._make_exchange,
            before_submit=self._before_submit, after_finish=self._after_finish, on_unused=self._warn_of_decay,
            in_use=lambda: optimizer() is not None, alone=self._is_alone(),
        )  # fmt: skip

    def _is_alone(self) -> bool:
        """The mean over one worker is its own gradient, so nothing is exchanged. (A
        server that applies the optimizer does so for one worker, too.)"""
        settings = self.settings
        exact = settings.compress in (None, "none") and settings.predivide == 1.0
        return settings.process_set.size() == 1 and _job.mode() != "ddp" and not settings.fused and exact

    def restart(self) -> None:
        """The next backward opens a new exchange, with the parameters of then."""
        passes = self.reducer.passes
        self.reducer.close()
        self.reducer = self._make_reducer()
        self._has_restarted = True
        self._taken = None
        self.reducer.passes = passes

    # ---- The exchange --------------------------------------------------------

    def _in_buckets(self) -> bool:
        """Whether each bucket is an allreduce of the host's memory."""
        everybody = self.settings.process_set
        return everybody._wire() is not None or _job.mode() == "ddp"

    def _place(self, entries: List[Entry]) -> str:
        self._gpu = None
        if not self._in_buckets():
            self._gpu = gpu.choose(entries, self.settings.gpu)
        else:
            for entry in entries:
                if entry.param.device.type != "cpu":
                    warn_of_copies(entry.param.device)
        return gpu.place_of(self._gpu, self.settings.gpu)

    def _make_exchange(self, entries: List[Entry], places: List[str]) -> Any:
        settings = self.settings
        if _job.mode() == "ddp" and settings.process_set is global_process_set:
            from .ddp import start_gloo

            return BucketExchange(entries, settings.bucket_mb, start_gloo())
        if self._in_buckets() or not entries:
            return BucketExchange(entries, settings.bucket_mb, self._start_bucket)
        options: Dict[str, Any] = settings.model_options()
        if self._gpu is not None:
            options.update(gpu.model_options(self._gpu, places))
        if settings.fused:
            groups = self.optimizer.param_groups
            self._options = self._current_options()
            if self._has_restarted and not settings.synchronous:  # each worker may be elsewhere in its schedule
                rates = memory.broadcast_json(fused.rates_of(self._options), name=self.name + ".rates")
                fused.begin_with_rates(self._options, rates)
            self._rates = fused.rates_of(self._options)
            options.update(fused.model_options(self._options, groups, entries))
            fused.warn_of_counts(entries, self.optimizer.state, self.settings.local_remedy)
            options["updates"] = memory.broadcast_json(
                fused.first_updates(entries, self.optimizer.state), name=self.name + ".step"
            )
        optimizer = self._optimizer  # as in _make_reducer()
        exchange = ModelExchange(self.name, entries, options, self._gpu, self._carried_bytes(entries))
        if exchange.carries:
            device = exchange.gradients.device
            exchange.carried = lambda: optimizer()._psring._buffers.pack(device)
        if settings.fused:
            fused.place_parameters(entries, self.optimizer.state)
            exchange.begin(fused.load_slots(exchange, entries, self.optimizer.state))
            fused.take_parameters(entries)
            self._forget_state(entries)
        else:
            exchange.begin()
            exchange.told_settings = lambda: optimizer()._psring.told_settings()
            exchange.has_joined = lambda steps: optimizer()._psring._has_joined(steps)
        return exchange

    def told_settings(self) -> bytes:
        buffers = self._sent_buffers()
        return self._same.told(0 if buffers is None else buffers.num_bytes())

    def _has_joined(self, others_steps: int) -> None:
        """join() is over: who had no more data has left out other steps than the others."""
        self._same.has_joined()
        self.is_behind |= others_steps > 0

    def _warn_if_behind(self) -> None:
        if self.is_behind and any(self.optimizer.state.values()):
            warn_once(
                "this rank had fewer batches than others before join(), so its optimizer's state, such as a momentum, is "
                "not theirs, and parts the ranks' parameters: after last = join() call broadcast_optimizer_state(optimizer, "
                "root_rank=last) on all ranks, beside broadcast_parameters(model.state_dict(), root_rank=last)"
            )
        self.is_behind = False

    def _carried_bytes(self, entries: List[Entry]) -> int:
        """Of buffers that travel with the gradients, in twice as many: not where they are large beside these."""
        buffers = self._sent_buffers()
        if buffers is None:
            return 0
        size = buffers.num_bytes()
        return size if size <= max(1 << 16, sum(entry.param.numel() for entry in entries) // 4) else 0

    def _start_bucket(self, bucket: torch.Tensor, number: int) -> Callable[[], Any]:
        small, ctx = self.settings.compression.compress(bucket)
        address = small.data_ptr()
        operation = memory.start_allreduce(
            f"{self.name}.bucket{number}", address, address, small.numel(),
            _lib.FLOAT32 if ctx is None else _lib.FLOAT16 if small.dtype == torch.float16 else _lib.BFLOAT16,
            Average, process_set=self.settings.process_set, keep=small,
        )  # fmt: skip

        def wait() -> None:
            operation.finish()
            if ctx is not None:
                bucket.copy_(small)

        return wait

    def dense(self) -> List[Entry]:
        return [entry for entry in self.reducer.entries if entry.result is not None]

    def _current_options(self) -> List[Dict[str, Any]]:
        """With "fused": what the library has to know of every param_group, as it is now."""
        return fused.all_options(self.kind, self.optimizer.param_groups, self.settings.local_remedy)

    def _before_submit(self) -> None:
        """Fused: the rates and momenta of this step, where they have changed."""
        exchange, buffers = self.reducer.exchange, self._sent_buffers()
        if buffers is not None:
            # All ranks' may have got another size since; told_settings() compares it.
            exchange.carries_now = 0 < exchange.carries == buffers.num_bytes()
        if not self._has_state():
            return
        self._warn_if_written()
        options = self._current_options()
        fused.check_unchanged(self._options, options, self.settings.local_remedy)
        rates = fused.rates_of(options)
        if rates != self._rates:
            exchange.set_rates(rates)
            self._rates = rates

    def _after_finish(self) -> None:
        """Buffers become rank 0's, where all ranks are at the same step. Not while a rank
        has no more data: it takes part in sums alone, and rank 0 may be it."""
        exchange, buffers = self.reducer.exchange, self._sent_buffers()
        if isinstance(exchange, ModelExchange) and exchange.compares_settings(exchange.steps):
            if not exchange.settings_agree():
                self._same.raise_difference(self.name, exchange.steps, exchange.all_have_data(), self._buffers)
        self._same.means_are_there()
        if buffers is not None and self.settings.synchronous:
            if exchange.carries_now:
                if _job.rank() != 0:
                    mine = buffers.pack(exchange.gradients.device)
                    buffers.take(mine, exchange.carried_by_root(mine))
            elif exchange.all_have_data():  # which waits for a GPU
                self._take_buffers(buffers)

    def _warn_of_decay(self, unused: List[Entry]) -> None:
        """Plain torch leaves a parameter without a gradient as it is; one of zeros is decayed."""
        decayed = {id(p) for group in self.optimizer.param_groups if group.get("weight_decay") for p in group["params"]}
        names = [entry.name for entry in unused if id(entry.param) in decayed]
        if names:
            others = len(names) - 1
            more = f" and {others} other parameter{'s' if others > 1 else ''}" if others else ""
            if self.settings.fused:
                warn_once(
                    f"this rank did not use {names[0]}{more} in the first step. If no other does, weight decay shrinks "
                    'them all the same with update="fused": give them no weight decay, or '
                    f"{self.settings.local_remedy} and find_unused=True"
                )
                return
            warn_once(
                f"no rank used {names[0]}{more} in the first step: p.grad is zeros there, and weight decay still shrinks "
                "them. Pass find_unused=True, and p.grad is None as in plain torch, or give them no weight decay"
            )

    def _sent_buffers(self) -> Optional[Buffers]:
        buffers = self._buffers
        return buffers if buffers is not None and self.settings.broadcast_buffers and buffers.travel() else None

    def _take_buffers(self, buffers: Optional[Buffers]) -> None:
        if buffers is not None:
            buffers.broadcast(self.name + ".buffers")

    def synchronise(self) -> None:
        """All ranks' parameters and buffers become the same, between steps."""
        exchange = self.reducer.exchange
        if not self._has_state():
            return
        self._warn_if_written()
        exchange.synchronise()
        self._take_parameters(exchange)
        self._take_buffers(self._sent_buffers())

    def _take_parameters(self, exchange: ModelExchange) -> None:
        fused.take_parameters(self.dense())
        self._taken = digest([entry.param for entry in self.dense()]) if is_sampled(exchange.steps) else None

    def _warn_if_written(self) -> None:
        """Says it where a script has written to a parameter since, which torch counts but through p.data."""
        entries = self.dense()
        if not entries:
            return
        written = next((entry.name for entry in entries if entry.was_written()), None)
        if written is not None:
            fused.warn_of_write(written)
        elif self._taken is not None and self._taken != digest([entry.param for entry in entries]):
            fused.warn_of_write("a parameter")

    # ---- Steps ---------------------------------------------------------------

    def _check_unfrozen(self) -> None:
        """Raises where a parameter needs a gradient that the exchange does not know."""
        for group in self.optimizer.param_groups:
            for param in group["params"]:
                if not param.requires_grad or id(param) in self._known:
                    continue
                name = next(name for name, held in self._named() if held is param)  # not in each step: it takes longer
                is_old = id(param) in self._held
                then, now = ("did not need a gradient", "does") if is_old else ("was not in param_groups", "is")
                raise RuntimeError(
                    f"{name} {then} when DistributedOptimizer was made, and now {now}: unfreeze or add parameters "
                    "before that, or call opt.close() on all workers, and make a new DistributedOptimizer"
                )

    def inner_step(self, *arguments: Any, **more: Any) -> Any:
        """The step of the optimizer's own class, as a scheduler may have patched it."""
        self._check_unfrozen()
        self._warn_if_behind()
        self._same.stepped()
        if self._patched_step is not None:
            self.in_patch = True
            try:
                return self._patched_step(*arguments, **more)
            finally:
                self.in_patch = False
        return self.kind.step(self.optimizer, *arguments, **more)  # type: ignore[attr-defined]

    def fused_step(self, closure: Any) -> Any:
        """What `closure`, which SGD, Adam and AdamW call once and before all else, returns."""
        if closure is None:
            return self._fused_step()
        with torch.enable_grad():
            loss = closure()
        self._fused_step()
        return loss

    def _fused_step(self) -> None:
        self._check_unfrozen()
        if self.settings.scaler is not None:
            if self._overflow():
                self.reducer.step_done()
                if self.reducer.exchange is not None:
                    self._after_finish()
                return
        elif hasattr(self.optimizer, "found_inf"):
            raise ValueError(
                'a GradScaler with update="fused" must be known before the gradients leave: '
                f"pass scaler= to DistributedOptimizer, or {self.settings.local_remedy}"
            )
        reducer = self.reducer
        if reducer.state == DONE:
            reducer.check_untouched()
        reducer.complete()
        reducer.exchange.finish()
        if self._has_state():
            self._take_parameters(reducer.exchange)
        reducer.step_done()
        if self._patched_step is not None:
            self.optimizer._opt_called = True  # what a scheduler's patch would note
            if hasattr(self.optimizer, "_step_count"):
                self.optimizer._step_count += 1
        self._after_finish()  # last: where it raises an error, the step is made all the same

    def _overflow(self) -> bool:
        """With a GradScaler: unscales p.grad; whether all ranks skip the step. In ssp and async none
        does, as nobody waits for the others: a rank whose gradients are infinite sends zeros."""
        optimizer = self.optimizer
        found = getattr(optimizer, "found_inf", None)
        overflow = found is not None and float(found) > 0
        if self.settings.synchronous:
            mine = torch.tensor([float(overflow)], dtype=torch.float32, device="cpu")
            if allreduce_(mine, name=self.name + ".found_inf", op=Max).item() > 0:
                # So that all ranks' scalers choose the same next scale.
                for value in self.settings.scaler._found_inf_per_device(optimizer).values():
                    value.fill_(1.0)
                return True
        scale = getattr(optimizer, "grad_scale", None)
        if scale is None and not overflow:
            return False  # the script has unscaled them
        factor = 1.0 if scale is None else 1.0 / float(scale)
        for entry in self.reducer.entries:
            if entry.param.grad is None:
                continue
            if overflow:
                entry.param.grad.zero_()
            else:
                entry.param.grad.mul_(factor)
        return False

    def _has_state(self) -> bool:
        """Whether the library has the optimizer's state, and not torch, as where there is nothing to train."""
        return self.settings.fused and isinstance(self.reducer.exchange, ModelExchange)

    def fetch_state(self) -> None:
        if not self._has_state():
            return
        # In ssp and async the parameters of now come with the state, over what a script has written.
        written = [(entry.param, entry.param.detach().clone()) for entry in self.dense() if entry.was_written()]
        self.optimizer.state.update(fused.fetch_state(self.reducer.exchange, self.dense()))
        with torch.no_grad():
            for param, value in written:
                param.copy_(value)

    def drop_state(self) -> None:
        """The state that fetch_state() has fetched is the library's again."""
        if self._has_state():
            self._forget_state(self.dense())

    def _forget_state(self, entries: List[Entry]) -> None:
        """Of these, the library has it. That of parameters that are frozen meanwhile stays."""
        for entry in entries:
            self.optimizer.state.pop(entry.param, None)

    def close(self) -> None:
        """The optimizer is one of its own class again, with its state."""
        optimizer = self.optimizer
        self.fetch_state()
        self.reducer.close()
        optimizer.__class__ = self.kind
        del optimizer._psring
        optimizer.__dict__.pop("_step_supports_amp_scaling", None)
        if self._patched_step is not None:
            optimizer.step = self._patched_step

    def keep_patch(self, patched: Callable[..., Any]) -> Callable[..., Any]:
        """A scheduler had replaced `step` of the object: its patch becomes the inner
        step, and its marks stay on the outer one."""
        self._patched_step = patched
        optimizer = self._optimizer

        @functools.wraps(patched)
        def step(*arguments: Any, **more: Any) -> Any:
            own: Any = optimizer()
            return type(own).step(own, *arguments, **more)

        return step


def _trainable(named: List[Tuple[str, Any]]) -> List[Tuple[str, Any]]:
    """The parameters to exchange. Errors: a dtype that would lose precision, no data."""
    chosen = []
    for name, param in named:
        if not param.requires_grad or param.numel() == 0:
            continue
        if param.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            remedy = "convert the model with model.float()"
            if param.is_complex():
                remedy = "make a real parameter of it, as torch.view_as_real does"
            raise TypeError(f"{name} is {param.dtype}; gradients are exchanged in float32: {remedy}")
        if param.device.type == "meta":
            raise TypeError(f"{name} is {NO_DATA}")
        chosen.append((name, param))
    return chosen
