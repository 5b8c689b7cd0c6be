"""The channels that launchers and engines have among the workers that they start.

An engine that calls a function in its workers gives its channel to `use`; under Ray Train it is a
broadcast of its workers, under torchrun the store of its agents, under Open MPI on several hosts
the store of its daemons. Backend psring of torch.distributed gives the store of its group.
"""

import atexit
import contextlib
import ctypes
import os
import socket
import sys
import threading
from concurrent import futures
from typing import Any, Dict, Iterator, Optional

from . import _lib
from ._rendezvous import Rendezvous, in_thread

_given: Optional[Rendezvous] = None


def use(rendezvous: Optional[Rendezvous]) -> None:
    """init() meets the others there; None: as the environment says."""
    global _given
    _given = rendezvous


@contextlib.contextmanager
def using(rendezvous: Optional[Rendezvous]) -> Iterator[None]:
    """The same for one init(), unless an engine has given its own, which may carry a key."""
    before = _given
    use(before or rendezvous)
    try:
        yield
    finally:
        use(before)


def find(settings: Dict[str, Any]) -> Optional[Rendezvous]:
    """The channel of a job whose script does not say where the coordinator is."""
    if _given is not None:
        return _given
    by_hand = any(settings.get(key) is not None for key in ("coordinator", "rank", "size"))
    if by_hand or os.environ.get("PSRING_COORDINATOR") or os.environ.get("PSRING_RANK"):
        return None
    return RayTrain.of_process() or TorchrunStore.of_environment() or Pmix.of_environment()


class RayTrain(Rendezvous):
    """A broadcast of Ray Train's workers, through its controller."""

    name = "Ray Train's broadcast"
    carries_key = True

    def __init__(self, context: Any):
        import ray

        self.rank = context.get_world_rank()
        self.place = {"rank": self.rank, "size": context.get_world_size()}
        self.host = ray.util.get_node_ip_address()

    @staticmethod
    def of_process() -> Optional["RayTrain"]:
        """None: this process is no worker of Ray Train, or its only one."""
        if "ray.train" not in sys.modules:
            return None
        import ray.train

        try:
            context = ray.train.get_context()
            size = context.get_world_size()
        except Exception:  # of Ray's own kinds, by version
            return None
        try:
            import ray.train.collective
        except ImportError:
            if not size or size < 2:
                return None
            raise _lib.PsringError(
                f"this is one of {size} workers of Ray Train's version 1, which has no channel for psring: set "
                "RAY_TRAIN_V2_ENABLED=1 where the training starts, or use psring.ray.RayExecutor"
            ) from None
        return RayTrain(context)

    def tell(self, text: str) -> None:
        self._broadcast(text)  # the job's join timeout says who is missing

    def ask(self, seconds: float) -> str:
        try:
            return self._broadcast(None).result(seconds)
        except futures.TimeoutError:
            raise TimeoutError(f"not all workers of Ray Train have called init() within {seconds:g} s") from None

    @staticmethod
    def _broadcast(text: Optional[str]) -> "futures.Future[str]":
        """It waits for the last worker without an end."""
        from ray.train.collective import broadcast_from_rank_zero

        return in_thread(lambda: broadcast_from_rank_zero(text))


def _read(store: Any, key: str, seconds: float, missing: str) -> str:
    """What a rank has told in a store of torch's. TimeoutError, which begins with `missing`, where none does."""
    from datetime import timedelta

    try:
        store.wait([key], timedelta(seconds=seconds))
    except Exception as error:  # of torch's own kind, by version
        raise TimeoutError(f"{missing}: {error}") from None
    return store.get(key).decode(errors="backslashreplace")


class TorchrunStore(Rendezvous):
    """torchrun's agents keep a store on MASTER_PORT, which outlives restarts of the workers.

    No variable says which of the workers' starts this one is: TORCHELASTIC_RESTART_COUNT counts
    what failed on this host alone. So every rank draws a number that the store has given to nobody
    before, and rank 0 answers each number while its job forms; what an earlier rank 0 has answered
    is read by none.
    """

    name = "torchrun's store"
    _POLL_SECONDS = 0.05
    _jobs = 0

    def __init__(self, rank: int, host: str, address: str, port: int):
        from torch.distributed import TCPStore

        TorchrunStore._jobs += 1
        self.rank, self.host, self._job = rank, host, f"psring/{TorchrunStore._jobs}"
        self._store = TCPStore(address, port, is_master=False)
        self._closed = threading.Event()
        self._answering: Optional[threading.Thread] = None

    @staticmethod
    def is_there() -> bool:
        env = os.environ
        needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        return env.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and all(env.get(name) for name in needed)

    @staticmethod
    def of_environment() -> Optional["TorchrunStore"]:
        if not TorchrunStore.is_there():
            return None
        env = os.environ
        address = env["MASTER_ADDR"]
        host = "127.0.0.1" if env.get("LOCAL_WORLD_SIZE") == env["WORLD_SIZE"] else address
        return TorchrunStore(int(env["RANK"]), host, address, int(env["MASTER_PORT"]))

    def tell(self, text: str) -> None:
        self._answering = threading.Thread(target=self._answer, args=(text,), daemon=True)
        self._answering.start()
        atexit.register(self.close)

    def _answer(self, text: str) -> None:
        answered = 0
        try:
            while True:
                asked = self._store.add(self._job + "/asked", 0)
                for number in range(answered + 1, asked + 1):
                    self._store.set(f"{self._job}/answer/{number}", text)
                answered = asked
                if self._closed.wait(self._POLL_SECONDS):
                    return
        except Exception as error:  # of torch's own kind, by version
            print(f"psring: {self.name} failed while the job formed: {error}", file=sys.stderr)

    def close(self) -> None:
        self._closed.set()
        if self._answering is not None:
            self._answering.join()
        atexit.unregister(self.close)

    def ask(self, seconds: float) -> str:
        key = f"{self._job}/answer/{self._store.add(self._job + '/asked', 1)}"
        return _read(self._store, key, seconds, f"worker 0 has not called init() within {seconds:g} s")


def _own_name() -> str:
    """This host's, or loopback where nobody knows the name, not even this host."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):  # of one with 64 characters, the most that Linux takes, say
        return "127.0.0.1"
    return name


class GroupStore(Rendezvous):
    """The store of a process group of torch.distributed. Its host is that of the group's rank 0, where `at_store`.
    A script that keeps one store for several jobs gives their groups other names."""

    name = "torch.distributed's store"
    _KEY = "psring"

    def __init__(self, store: Any, rank: int, at_store: bool = True):
        self.rank, self._store = rank, store
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        host = getattr(store, "host", None) if at_store else None  # a file names none
        self.host = host or _own_name()

    def tell(self, text: str) -> None:
        self._store.set(self._KEY, text)

    def ask(self, seconds: float) -> str:
        missing = f"worker 0 has not come to init_process_group() within {seconds:g} s, or has failed there"
        return _read(self._store, self._KEY, seconds, missing)


class Pmix(Rendezvous):
    """Open MPI's key-value store, in its daemons, which serve all processes that mpirun starts.

    The structures are of PMIx 2 and newer (pmix_common.h).
    """

    name = "Open MPI's store"

    class _Process(ctypes.Structure):
        _fields_ = [("namespace", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]

    class _Value(ctypes.Structure):
        # The union's largest member takes less; only strings are exchanged.
        _fields_ = [("kind", ctypes.c_uint16), ("text", ctypes.c_char_p), ("_rest", ctypes.c_char * 56)]

    _STRING, _GLOBAL = 3, 3
    _library: Any = None
    _namespace = b""
    _jobs = 0

    def __init__(self, rank: int):
        Pmix._jobs += 1
        self.rank, self._key = rank, f"psring.{Pmix._jobs}".encode()
        self.host = socket.gethostname()
        self._me = self._Process()
        if Pmix._library is None:
            library = ctypes.CDLL("libpmix.so.2")
            self._check("PMIx_Init", library.PMIx_Init(ctypes.byref(self._me), None, ctypes.c_size_t(0)))
            # Else mpirun takes the end of this process for an accident.
            atexit.register(library.PMIx_Finalize, None, ctypes.c_size_t(0))
            Pmix._library, Pmix._namespace = library, self._me.namespace

    @staticmethod
    def of_environment() -> Optional["Pmix"]:
        """Nothing on one host, where the address follows from the job's name."""
        rank, size, here = (os.environ.get("OMPI_COMM_WORLD_" + name) for name in ("RANK", "SIZE", "LOCAL_SIZE"))
        if not rank or not os.environ.get("PMIX_NAMESPACE") or size == here:
            return None
        try:
            return Pmix(int(rank))
        except (OSError, _lib.PsringError):
            return None  # init() then says what to type

    def tell(self, text: str) -> None:
        value = self._Value(self._STRING, text.encode(), b"")
        self._check("PMIx_Put", self._library.PMIx_Put(ctypes.c_uint8(self._GLOBAL), self._key, ctypes.byref(value)))
        self._check("PMIx_Commit", self._library.PMIx_Commit())

    def ask(self, seconds: float) -> str:
        """PMIx_Get waits without an end."""
        first, found = self._Process(self._namespace, 0), ctypes.POINTER(self._Value)()
        arguments = (ctypes.byref(first), self._key, None, ctypes.c_size_t(0), ctypes.byref(found))
        try:
            code = in_thread(lambda: self._library.PMIx_Get(*arguments)).result(seconds)
        except futures.TimeoutError:
            raise TimeoutError(f"worker 0 has not called init() within {seconds:g} s") from None
        self._check("PMIx_Get", code)
        return found.contents.text.decode(errors="backslashreplace")

    @staticmethod
    def _check(call: str, code: int) -> None:
        if code != 0:
            raise _lib.PsringError(f"{call} failed with {code}: set PSRING_COORDINATOR=HOST:PORT on all processes")
