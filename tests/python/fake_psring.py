"""A stand-in for libpsring.so, in Python, for as many processes as asked for.

It keeps the promises of python/capi/psring.h in the simplest way: rank 0 has a
hub, every collective is a gather of everybody's bytes through it, and every rank
works out its own result. What it says when something fails is its own.
"""

import ctypes
import itertools
import json
import os
import struct
import threading
import time
from multiprocessing.connection import Client, Listener

import torch

OK, PENDING, ERROR, INTERRUPTED, INVALID = 0, 1, -1, -2, -3
DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.bool,
]  # fmt: skip
SUM, AVERAGE, MIN, MAX, PRODUCT = range(5)
KEY = b"fake psring"


class Hub(threading.Thread):
    """Of rank 0: collects what the ranks of a set send under one name."""

    def __init__(self, address, size):
        super().__init__(daemon=True)
        self.listener = Listener(address, authkey=KEY, backlog=size)
        self.size = size
        self.lock = threading.Lock()
        self.connections, self.places = {}, {}
        self.gathers = {}  # by key, in the order of their calls
        self.joined, self.left, self.leaving = [], set(), {}
        self.failed = ""

    def run(self):
        while len(self.connections) < self.size:
            connection = self.listener.accept()
            rank, host, pid = connection.recv()
            self.connections[rank] = connection
            self.places[rank] = (host, pid)
        places = [self.places[r] for r in range(self.size)]
        for rank in range(self.size):
            self.connections[rank].send(("job", places))
        for rank in range(self.size):
            threading.Thread(target=self.serve, args=(rank,), daemon=True).start()

    def serve(self, rank):
        while True:
            try:
                message = self.connections[rank].recv()
            except (EOFError, OSError):
                with self.lock:
                    if rank not in self.left:
                        self.fail(rank, "the connection ended")
                return
            with self.lock:
                self.handle(rank, *message)

    def handle(self, rank, kind, number, *rest):
        if kind == "gather":
            key, ranks, data = rest
            waiting = self.gathers.setdefault(key, [])
            if all(rank in got for _, got in waiting):
                waiting.append((ranks, {}))
            next(got for _, got in waiting if rank not in got)[rank] = (number, data)
            self.answer_gathers()
        elif kind == "join":
            self.joined.append((rank, number))
            if len(self.joined) == self.size:
                last = self.joined[-1][0]
                for other, handle in self.joined:
                    self.connections[other].send(("done", handle, [struct.pack("<i", last)]))
                self.joined = []
            self.answer_gathers()
        elif kind == "leave":
            error = rest[0]
            self.left.add(rank)
            if error:
                self.fail(rank, error)
                self.connections[rank].send(("done", number, []))
            else:
                self.leaving[rank] = number
                self.answer_gathers()
                if len(self.leaving) == self.size:
                    # Rank 0 comes last: its process, which may end then, is this one.
                    for other, handle in sorted(self.leaving.items(), reverse=True):
                        self.connections[other].send(("done", handle, []))

    def answer_gathers(self):
        absent = {rank for rank, _ in self.joined}
        for key, (ranks, got) in [(key, each) for key, waiting in self.gathers.items() for each in waiting]:
            excused = absent if key[0] in ("allreduce", "barrier") else set()
            gone = sorted(set(ranks) & self.left - set(got))
            if gone:
                self.fail(gone[0], f"it left the job, and others wait for it in {key[0]} {key[1]}")
                return
            if set(ranks) <= set(got) | excused and got:
                self.gathers[key].remove((ranks, got))
                if not self.gathers[key]:
                    del self.gathers[key]
                data = [got[r][1] if r in got else None for r in ranks]
                for rank, (number, _) in got.items():
                    self.connections[rank].send(("done", number, data))

    def fail(self, rank, error):
        if self.failed:
            return
        host, pid = self.places[rank]
        self.failed = f"worker {rank} (host {host}, pid {pid}) failed: {error}"
        for other, connection in self.connections.items():
            try:
                connection.send(("failed", self.failed))
            except OSError:
                pass


class Pending:
    def __init__(self, collect=lambda data: data):
        self.event = threading.Event()
        self.collect, self.data, self.error, self.result = collect, None, None, None
        self.lock = threading.Lock()


class FakeLibrary:
    def __init__(self):
        self.numbers = itertools.count(1)
        self.operations, self.models = {}, {}
        self.local = threading.local()
        self.failed, self.job, self.connection = "", None, None
        self.forked = False
        self.log = []  # (what, model, ...) in the order of calls, for tests

    # ---- Errors

    def invalid(self, text):
        self.local.error = text
        return INVALID

    def error(self, text):
        self.local.error = text
        return ERROR

    def psring_abi(self):
        return 3

    def psring_cuda_built(self):
        return 0

    def psring_policies(self):
        flags = {"bsp": (True, False), "ssp": (False, True), "async": (False, False)}
        return json.dumps([{"name": n, "barrier": b, "bounded": k} for n, (b, k) in flags.items()]).encode()

    def psring_version(self):
        return b"0 (fake)"

    def psring_error(self):
        return getattr(self.local, "error", "").encode()

    def psring_failure(self):
        return self.failed.encode()

    # ---- The job

    def psring_join(self, options):
        options = json.loads(options)
        env = os.environ
        self.rank = int(options.get("rank", env.get("PSRING_RANK", 0)))
        self.size = int(options.get("size", env.get("PSRING_SIZE", 1)))
        self.mode = options.get("mode") or env.get("PSRING_MODE") or "ring"
        coordinator = options.get("coordinator") or env.get("PSRING_COORDINATOR") or "127.0.0.1:0"
        host, port = coordinator.split(":")
        if self.rank == 0:
            hub = Hub((host, int(port)), self.size)
            hub.start()
            port = hub.listener.address[1]
        number, pending = self.pending()

        def join():
            deadline = time.monotonic() + 20
            while True:
                try:
                    self.connection = Client((host, int(port)), authkey=KEY)
                    break
                except OSError as error:
                    if time.monotonic() > deadline:
                        pending.error = str(error)
                        pending.event.set()
                        return
                    time.sleep(0.05)
            self.connection.send((self.rank, "fake", os.getpid()))
            _, places = self.connection.recv()
            self.job = {
                "rank": self.rank, "size": self.size, "local_rank": self.rank, "local_size": self.size,
                "cross_rank": 0, "cross_size": 1, "mode": self.mode, "servers": 1, "address": "127.0.0.1",
                "hosts": [h for h, _ in places], "pids": [p for _, p in places],
            }  # fmt: skip
            pending.event.set()
            self.receive()

        threading.Thread(target=join, daemon=True).start()
        return number

    def receive(self):
        while True:
            try:
                message = self.connection.recv()
            except (EOFError, OSError):
                if not self.failed:
                    self.fail("the coordinator is gone")
                return
            if message[0] == "failed":
                self.fail(message[1])
            else:
                _, number, data = message
                pending = self.operations.get(number)
                if pending is not None:
                    pending.data = data
                    pending.event.set()

    def fail(self, text):
        self.failed = text
        for pending in list(self.operations.values()):
            pending.error = pending.error or text
            pending.event.set()

    def psring_job(self):
        if self.job is None:
            self.local.error = "no job"
            return None
        return json.dumps(self.job).encode()

    def psring_heed_stop(self, heeds):
        return 0

    def psring_stop_asked(self):
        return 0

    def psring_log(self, line):
        folder = os.environ.get("PSRING_METRICS_DIR")
        if folder:
            with open(os.path.join(folder, f"worker-{self.rank}.jsonl"), "a") as file:
                file.write(line.decode() + "\n")
        return 0

    def psring_leave(self, error):
        number, pending = self.pending()
        try:
            self.connection.send(("leave", number, error.decode()))
        except OSError:
            pending.error = self.failed or "gone"
            pending.event.set()
        return number

    def psring_forked(self):
        self.forked, self.operations = True, {}

    # ---- Handles

    def pending(self, collect=lambda data: data):
        number = next(self.numbers)
        pending = self.operations[number] = Pending(collect)
        return number, pending

    def done(self, result=None):
        number, pending = self.pending()
        pending.data = result
        pending.event.set()
        return number

    def psring_wait(self, handle, timeout_ms):
        pending = self.operations.get(handle)
        if pending is None:
            return self.invalid(f"handle {handle} is unknown")
        if not pending.event.wait(timeout_ms / 1000):
            return PENDING
        with pending.lock:
            if pending.collect is not None and pending.error is None:
                try:
                    pending.result = pending.collect(pending.data)
                except ValueError as error:
                    pending.error = str(error)
                    self.local.error = pending.error
                    return INVALID
                pending.collect = None
        return OK if pending.error is None else self.error(pending.error)

    def psring_wait_interruptibly(self, handle):
        return self.psring_wait(handle, 1e6)

    def psring_release(self, handle):
        self.operations.pop(handle, None)
        return OK

    # ---- Collectives

    def gather(self, kind, name, meta, data, ranks, size, collect):
        """collect(parts): by rank of the set; None of a rank that has joined."""
        if self.forked or self.job is None:
            return self.invalid("no job")
        everybody = list(range(self.size)) if ranks is None else list(ranks[:size])

        def check(parts):
            metas = [(r, p[0]) for r, p in zip(everybody, parts) if p is not None]
            for rank, other in metas:
                if other != metas[0][1]:
                    raise ValueError(
                        f"{kind} {name}: {metas[0][1]} on rank {metas[0][0]}, {other} on rank {rank}"
                    )
            return collect([None if p is None else p[1] for p in parts])

        number, pending = self.pending(check)
        if self.failed:
            pending.error = self.failed
            pending.event.set()
            return number
        self.connection.send(("gather", number, (kind, name, tuple(everybody)), everybody, (meta, data)))
        return number

    @staticmethod
    def read(address, size):
        return ctypes.string_at(address, size) if size else b""

    @staticmethod
    def write(address, data):
        if data:
            ctypes.memmove(address, data, len(data))

    @staticmethod
    def reduce(parts, dtype, op, prescale, postscale, count):
        kind = DTYPES[dtype]
        wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
        total = None
        for part in parts:
            if part is None:
                value = torch.zeros(count, dtype=wide)
            else:
                value = torch.frombuffer(bytearray(part), dtype=kind).to(wide) if part else torch.zeros(0, dtype=wide)
            if prescale != 1.0:
                value = value * prescale
            if total is None:
                total = value.clone()
            elif op in (SUM, AVERAGE):
                total = total | value if kind == torch.bool else total + value
            elif op == PRODUCT:
                total = total * value
            else:
                total = torch.minimum(total, value) if op == MIN else torch.maximum(total, value)
        if op == AVERAGE:
            total = total * (1.0 / len(parts))
        if postscale != 1.0:
            total = total * postscale
        return total.to(kind)

    @staticmethod
    def tensor_bytes(tensor):
        return bytes(tensor.contiguous().view(torch.uint8).tolist()) if tensor.numel() else b""

    def psring_allreduce(self, name, source, target, count, dtype, op, prescale, postscale, ranks, size):
        if op == AVERAGE and not DTYPES[dtype].is_floating_point:
            return self.invalid("average of integers")
        width = torch.empty(0, dtype=DTYPES[dtype]).element_size()
        meta = ("allreduce", dtype, op, count, prescale, postscale)

        def collect(parts):
            out = self.reduce(parts, dtype, op, prescale, postscale, count)
            if count:
                ctypes.memmove(target, out.data_ptr(), count * width)

        return self.gather("allreduce", name, meta, self.read(source, count * width), ranks, size, collect)

    def put(self, parts, out, out_bytes):
        if out and sum(map(len, parts)) == out_bytes:
            self.write(out, b"".join(parts))
        return parts

    def psring_allgather(self, name, source, length, tag, out, out_bytes, ranks, size):
        mine = self.read(source, length)
        return self.gather("allgather", name, tag, mine, ranks, size, lambda parts: self.put(parts, out, out_bytes))

    def psring_broadcast(self, name, data, length, root, tag, ranks, size):
        everybody = list(range(self.size)) if ranks is None else list(ranks[:size])
        mine = self.read(data, length) if root == self.rank else b""

        def collect(parts):
            self.write(data, parts[everybody.index(root)])

        return self.gather("broadcast", name, (tag, length, root), mine, ranks, size, collect)

    def psring_alltoall(self, name, source, sizes, tag, out, out_bytes, ranks, size):
        everybody = list(range(self.size)) if ranks is None else list(ranks[:size])
        cuts = list(sizes[: len(everybody)])
        mine = self.read(source, sum(cuts))
        me = everybody.index(self.rank)
        parts, begin = [], 0
        for cut in cuts:
            parts.append(mine[begin : begin + cut])
            begin += cut

        def collect(all_parts):
            return self.put([p[me] for p in all_parts], out, out_bytes)

        return self.gather("alltoall", name, tag, parts, ranks, size, collect)

    def psring_reducescatter(self, name, source, target, counts, dtype, op, prescale, postscale, ranks, size):
        everybody = list(range(self.size)) if ranks is None else list(ranks[:size])
        cuts = list(counts[: len(everybody)])
        width = torch.empty(0, dtype=DTYPES[dtype]).element_size()
        me = everybody.index(self.rank)

        def collect(parts):
            out = self.reduce(parts, dtype, op, prescale, postscale, sum(cuts))
            part = out[sum(cuts[:me]) : sum(cuts[: me + 1])].clone()
            if part.numel():
                ctypes.memmove(target, part.data_ptr(), part.numel() * width)

        mine = self.read(source, sum(cuts) * width)
        return self.gather("reducescatter", name, (dtype, op, cuts), mine, ranks, size, collect)

    def psring_barrier(self, name, ranks, size):
        return self.gather("barrier", name, (), b"", ranks, size, lambda parts: None)

    def psring_set_order(self, handle, order):
        return OK if handle in self.operations else self.invalid(f"handle {handle} is unknown")

    def psring_join_uneven(self):
        number, _ = self.pending()
        self.connection.send(("join", number))
        return number

    def psring_result_sizes(self, handle, sizes, count):
        for i, part in enumerate(self.operations[handle].result):
            sizes[i] = len(part)
        return OK

    def psring_result(self, handle, out, length):
        data = b"".join(self.operations[handle].result)
        if len(data) != length:
            return self.invalid(f"{length} bytes asked for, {len(data)} are there")
        self.write(out, data)
        return OK

    # ---- Models

    def psring_open_model(self, options):
        model = FakeModel(self, json.loads(options))
        self.models[model.number] = model
        return self.gather(
            "open", str(model.number), options, b"", None, 0, lambda parts: [struct.pack("<q", model.number)]
        )

    def psring_model(self, number):
        return json.dumps(self.models[number].about).encode()

    def psring_parameters(self, number):
        return ctypes.addressof(self.models[number].parameters_memory)

    def psring_gradients(self, number):
        return ctypes.addressof(self.models[number].gradients_memory)

    def psring_begin(self, number, slots, num_slots):
        model = self.models[number]
        count = model.parameters.numel()
        if num_slots not in (0, len(model.slots)):
            return self.invalid(f"{num_slots} slots, not {len(model.slots)}")
        mine = [self.read(ctypes.addressof(model.parameters_memory), count * 4)]
        mine += [self.read(slots[i], count * 4) for i in range(num_slots)]

        def collect(parts):
            self.write(ctypes.addressof(model.parameters_memory), parts[0][0])
            for slot, data in zip(model.slots, parts[0][1:]):
                slot.copy_(torch.frombuffer(bytearray(data), dtype=torch.float32))

        return self.gather("begin", str(number), (), mine, None, 0, collect)

    def psring_set_rates(self, number, rates, count):
        self.models[number].rates = list(rates[:count])
        self.log.append(("rates", number, list(rates[:count])))
        return OK

    def psring_submit(self, number, bucket):
        return self.models[number].submit(bucket)

    def psring_finish(self, number):
        return self.models[number].finish()

    def psring_updates(self, number):
        return self.models[number].step

    def psring_synchronise(self, number):
        return self.gather("synchronise", str(number), (), b"", None, 0, lambda parts: None)

    def psring_fetch_slots(self, number, slots, num_slots):
        model = self.models[number]
        assert num_slots == len(model.slots)
        if self.rank == 0:
            for slot, address in zip(model.slots, slots):
                data = self.tensor_bytes(slot)
                ctypes.memmove(address, data, len(data))
        return self.gather("slots", str(number), (), b"", None, 0, lambda parts: None)

    def psring_traffic(self, number):
        return b'{"sent": 1, "received": 1, "gradients_sent": 1}'

    def psring_close_model(self, number):
        return self.gather("close", str(number), (), b"", None, 0, lambda parts: None)

    def psring_free_model(self, parameters):
        return 0


class FakeModel:
    SLOTS = {"momentum": ["momentum_buffer"], "nesterov": ["momentum_buffer"],
             "adam": ["exp_avg", "exp_avg_sq"], "adamw": ["exp_avg", "exp_avg_sq"]}  # fmt: skip
    KEYS = {"id", "tensors", "bucket_mb", "update", "sync", "staleness", "compress", "groups", "tensor_groups", "updates",
            "device", "ring_backend", "momenta"}

    def __init__(self, library, options):
        unknown = set(options) - self.KEYS
        assert not unknown, unknown
        self.library, self.options = library, options
        self.number = len(library.models) + 1
        self.fused = options["update"] == "fused"
        limit = options["bucket_mb"] * (1 << 20)
        tensors, offset, bucket, filled = [], 0, 0, 0
        self.ranges = []
        # The last tensor of the forward pass lies first, as in the real one.
        for tensor in reversed(options["tensors"]):
            size = 1
            for extent in tensor["shape"]:
                size *= extent
            if filled and filled + 4 * size > limit:
                self.ranges.append((offset - filled // 4, offset))
                bucket, filled = bucket + 1, 0
            tensors.append({"begin": offset, "size": size, "bucket": bucket})
            offset, filled = offset + size, filled + 4 * size
        self.ranges.append((offset - filled // 4, offset))
        groups = options.get("groups", [])
        slots = self.SLOTS.get(groups[0]["name"], []) if groups else []
        self.about = {"num_elements": offset, "num_buckets": len(self.ranges), "num_slots": len(slots),
                      "slot_names": slots, "tensors": tensors[::-1]}  # fmt: skip
        self.parameters_memory = (ctypes.c_float * offset)()
        self.gradients_memory = (ctypes.c_float * offset)()
        self.parameters = torch.frombuffer(self.parameters_memory, dtype=torch.float32)
        self.gradients = torch.frombuffer(self.gradients_memory, dtype=torch.float32)
        self.slots = [torch.zeros(offset, dtype=torch.float32) for _ in slots]
        self.rates = [g["lr"] for g in groups]
        self.step = options.get("updates", 0)
        self.submitted = []

    def submit(self, bucket):
        self.library.log.append(("submit", self.number, bucket))
        if bucket in [b for b, _ in self.submitted]:
            return self.library.invalid(f"bucket {bucket} was submitted twice")
        begin, end = self.ranges[bucket]
        data = self.library.read(ctypes.addressof(self.gradients_memory) + 4 * begin, 4 * (end - begin))
        # As the real one may: until finish() these are not the caller's.
        if not self.fused:
            self.parameters[begin:end] = float("nan")
        handle = self.library.gather(
            "bucket", f"{self.number}.{bucket}.{self.step}", (), data, None, 0,
            lambda parts: self.library.reduce(parts, 7, AVERAGE, 1.0, 1.0, end - begin),
        )  # fmt: skip
        self.submitted.append((bucket, handle))
        return OK

    def finish(self):
        if len(self.submitted) != len(self.ranges):
            return self.library.invalid(f"{len(self.submitted)} of {len(self.ranges)} buckets were submitted")
        self.step += 1
        for bucket, handle in self.submitted:
            while True:
                code = self.library.psring_wait(handle, 100)
                if code != PENDING:
                    break
            if code < 0:
                return code
            begin, end = self.ranges[bucket]
            mean = self.library.operations.pop(handle).result
            if self.fused:
                self.apply(begin, end, mean)
            else:
                self.parameters[begin:end] = mean
        self.submitted = []
        return OK

    def apply(self, begin, end, gradient):
        groups = self.options["groups"]
        for place, number in zip(self.about["tensors"], self.options["tensor_groups"]):
            lo, hi = place["begin"], place["begin"] + place["size"]
            if begin <= lo < end:
                group = dict(groups[number])
                if len(self.rates) == 2 * len(groups):
                    group["momentum"] = group["beta1"] = self.rates[len(groups) + number]
                self.apply_one(group, self.rates[number], lo, hi, gradient[lo - begin : hi - begin])

    def apply_one(self, o, lr, lo, hi, g):
        p, slots = self.parameters[lo:hi], [s[lo:hi] for s in self.slots]
        wd = o.get("weight_decay", 0.0)
        if o["name"] == "adamw":
            p.mul_(1 - lr * wd)
        elif wd:
            g = g + wd * p
        if o["name"] == "sgd":
            p.sub_(g, alpha=lr)
        elif o["name"] in ("momentum", "nesterov"):
            b = slots[0].mul_(o["momentum"]).add_(g)
            p.sub_(g + o["momentum"] * b if o["name"] == "nesterov" else b, alpha=lr)
        else:
            m, v = slots
            m.mul_(o["beta1"]).add_(g, alpha=1 - o["beta1"])
            v.mul_(o["beta2"]).addcmul_(g, g, value=1 - o["beta2"])
            c1, c2 = 1 - o["beta1"] ** self.step, 1 - o["beta2"] ** self.step
            epsilon = o["epsilon"] / c2**0.5 if o.get("epsilon_hat") else o["epsilon"]
            p.addcdiv_(m / c1, (v / c2).sqrt() + epsilon, value=-lr)
