"""psring on Ray: a function runs as the workers of a job, each an actor.

    import psring.ray
    executor = psring.ray.RayExecutor(num_workers=4, mode="ps", servers=2)
    executor.start()
    results = executor.run(train, args=(0.1,))        # by rank
    executor.shutdown()

`train` calls psring.init() as any script does. In a worker of Ray Train init() finds the others
by itself.
"""

import asyncio
import contextlib
import sys
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import ray

from . import _engine, _rendezvous


class _Board:
    """An actor: what rank 0 has told, by job."""

    def __init__(self) -> None:
        self._told: Dict[str, "asyncio.Future[str]"] = {}

    def _of(self, job: str) -> "asyncio.Future[str]":
        return self._told.setdefault(job, asyncio.get_running_loop().create_future())

    async def tell(self, job: str, text: str) -> None:
        self._of(job).set_result(text)

    async def ask(self, job: str) -> str:
        return await asyncio.shield(self._of(job))


class _Channel(_rendezvous.Rendezvous):
    """The board of an executor: by Ray's own messages."""

    name = "Ray's actor"
    carries_key = True

    def __init__(self, board: Any, rank: int, host: str, name: str):
        self._board, self.rank, self.host, self._name = board, rank, host, name
        self._jobs = 0

    def tell(self, text: str) -> None:
        self._jobs += 1
        ray.get(self._board.tell.remote(f"{self._name}/{self._jobs}", text))

    def ask(self, seconds: float) -> str:
        self._jobs += 1
        try:
            return ray.get(self._board.ask.remote(f"{self._name}/{self._jobs}"), timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            raise TimeoutError(f"worker 0 has not called init() within {seconds:g} s") from None


_SAID_AFTER_S = 10  # that the cluster has no room yet


class _Worker:
    """An actor: one worker of the job, a process of its own."""

    def node(self) -> Tuple[str, str]:
        """Its number, and its address."""
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()

    def run(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Dict[str, Any],
        rank: int, nodes: List[Tuple[str, str]], variables: Dict[str, str], board: Any, name: str,
    ) -> Any:  # fmt: skip
        place = {**variables, **_engine.place(rank, [number for number, _ in nodes])}
        return _engine.call(function, args, kwargs, place, _Channel(board, rank, nodes[0][1], name))


def _end(call: Callable[[Any], Any], taken: Any) -> None:
    """Calls it with what is taken of Ray; does nothing where that Ray has been shut down since, maybe for another."""
    if ray.is_initialized():  # else `call` starts one
        with contextlib.suppress(Exception):
            call(taken)


class RayExecutor:
    """As Horovod's of the same name. The end of the object is a shutdown().

    Args:
        num_workers: the number of workers.
        mode: "ring" or "ps"; default: as the function says, else the ring.
        servers, servers_per_node: in mode ps, as in psring.init().
        cpus_per_worker, gpus_per_worker: what each takes of its node.
        strategy: how the placement group lays workers on nodes: "PACK" (default), "SPREAD",
            "STRICT_PACK" or "STRICT_SPREAD".
        env: more variables of the workers.
        start_timeout_s: how long start() waits for room.
    """

    def __init__(
        self,
        num_workers: int,
        *,
        mode: Optional[str] = None,
        servers: Optional[int] = None,
        servers_per_node: Optional[int] = None,
        cpus_per_worker: float = 1,
        gpus_per_worker: float = 0,
        strategy: str = "PACK",
        env: Optional[Dict[str, str]] = None,
        start_timeout_s: float = 300,
    ):
        self._size, self._strategy, self._timeout = _engine.count("num_workers", num_workers), strategy, start_timeout_s
        self._variables = {**_engine.texts(env), **_engine.settings(mode, servers, servers_per_node)}
        self._resources = {"CPU": cpus_per_worker, **({"GPU": gpus_per_worker} if gpus_per_worker else {})}
        self._taken = contextlib.ExitStack()  # ends the actors, and then the placement group
        weakref.finalize(self, self._taken.close).atexit = False  # which Ray does by itself
        self._board: Any = None
        self._workers: List[Any] = []
        self._nodes: List[Tuple[str, str]] = []  # by rank
        self._runs = 0
        self._running = threading.Lock()

    def __getstate__(self) -> Dict[str, Any]:
        """A function that workers run may hold it, in its object, say."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_running", "_taken")}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state, _running=threading.Lock(), _taken=contextlib.ExitStack())

    def start(self) -> None:
        """Returns when all workers run, new ones where some ran. TimeoutError where the cluster has no
        room for them."""
        if not ray.is_initialized():
            ray.init()
        self.shutdown()
        try:
            self._start()
        except BaseException:
            self.shutdown()
            raise

    def _start(self) -> None:
        from ray.util.placement_group import placement_group, remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        group = placement_group([self._resources] * self._size, strategy=self._strategy)
        self._taken.callback(_end, remove_placement_group, group)
        said_after_s = min(_SAID_AFTER_S, self._timeout)
        if not group.wait(said_after_s):
            wanted = f"room for {self._size} workers with {self._resources} each ({self._strategy})"
            rest_s = self._timeout - said_after_s
            if rest_s > 0:
                print(f"psring: waits for {wanted}, {rest_s:g} s at most; Ray has {ray.available_resources()}", file=sys.stderr)
            if not group.wait(rest_s):
                raise TimeoutError(f"Ray has no {wanted}: it has {ray.available_resources()}")
        for index in range(self._size):
            at = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
            options = {"scheduling_strategy": at, "num_cpus": self._resources["CPU"]}
            if "GPU" in self._resources:
                options["num_gpus"] = self._resources["GPU"]
            self._workers.append(ray.remote(_Worker).options(**options).remote())
            self._taken.callback(_end, ray.kill, self._workers[-1])
        nodes = ray.get([worker.node.remote() for worker in self._workers])
        # Workers of a node follow one another, as rings and servers_per_node want it.
        order = sorted(range(self._size), key=lambda index: (nodes.index(nodes[index]), index))
        self._workers = [self._workers[index] for index in order]
        self._nodes = [nodes[index] for index in order]
        self._board = ray.remote(_Board).options(num_cpus=0).remote()
        self._taken.callback(_end, ray.kill, self._board)

    def run(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> List[Any]:
        """Runs fn(*args, **kwargs) on all workers; what each returned, by rank.

        Raises the first failure: the exception of a function, or Ray's RayActorError for a worker
        that died. Then the executor has to be started again. One run at a time.
        """
        if not self._running.acquire(blocking=False):
            raise RuntimeError("RayExecutor: its workers run another function: wait for that, or make another executor")
        try:
            return self._run(fn, *_engine.arguments(args, kwargs))
        finally:
            self._running.release()

    def _run(self, fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> List[Any]:
        if not self._workers:
            raise RuntimeError("RayExecutor: call start() first, and again after a run that has failed")
        self._runs += 1
        calls = [
            worker.run.remote(fn, args, kwargs, rank, self._nodes, self._variables, self._board,
                              str(self._runs))
            for rank, worker in enumerate(self._workers)
        ]  # fmt: skip
        try:
            return ray.get(calls)
        except BaseException:  # or the workers would go on after Ctrl-C
            self.shutdown()
            raise

    def execute(self, fn: Callable[[], Any]) -> List[Any]:
        """run() without arguments."""
        return self.run(fn)

    def shutdown(self) -> None:
        """Ends the workers; start() may follow."""
        self._workers, self._board = [], None
        self._taken.close()
