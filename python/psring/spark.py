"""psring on Spark: a function runs as the workers of a job, in the tasks of a barrier stage.

    import psring.spark
    results = psring.spark.run(train, args=(0.1,), num_proc=4)        # by rank
    HorovodRunner(np=4).run(train, lr=0.1)                            # rank 0's result

`train` calls psring.init() as any script does. Spark starts all tasks at once, on executors
of its choice, and where one fails it ends the stage with that task's exception and starts it
again (spark.stage.maxConsecutiveAttempts, 4): a function that loads its last checkpoint goes
on from there.
"""

import inspect
from concurrent import futures
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import _engine, _here, _rendezvous


class _BarrierChannel(_rendezvous.Rendezvous):
    """allGather of the stage's tasks: by Spark's own messages, through its driver."""

    name = "Spark's barrier"
    carries_key = True

    def __init__(self, context: Any, host: str):
        self._context, self.rank, self.host = context, context.partitionId(), host

    def _gather(self, text: str) -> "futures.Future[List[str]]":
        """allGather waits for the last task for a year."""
        return _rendezvous.in_thread(lambda: self._context.allGather(text))

    def tell(self, text: str) -> None:
        self._gather(text)  # the job's join timeout says who is missing

    def ask(self, seconds: float) -> str:
        try:
            return self._gather("").result(seconds)[0]
        except futures.TimeoutError:
            raise TimeoutError(f"not all tasks of the stage have called init() within {seconds:g} s") from None


def _task(payload: bytes, variables: Dict[str, str]) -> Callable[[Any], Any]:
    def task(_: Any) -> Any:
        from pyspark import BarrierTaskContext, cloudpickle

        context = BarrierTaskContext.get()
        hosts = [info.address.rpartition(":")[0] for info in context.getTaskInfos()]
        rank = context.partitionId()
        function, args, kwargs = cloudpickle.loads(payload)
        place = {**variables, **_engine.place(rank, hosts)}
        result = _engine.call(function, args, kwargs, place, _BarrierChannel(context, hosts[0]))
        yield rank, (_engine.kind_of(result), cloudpickle.dumps(result))

    return task


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Dict[str, Any]] = None,
    num_proc: Optional[int] = None,
    *,
    mode: Optional[str] = None,
    servers: Optional[int] = None,
    servers_per_node: Optional[int] = None,
    env: Optional[Dict[str, str]] = None,
    spark: Any = None,
) -> List[Any]:
    """Runs fn(*args, **kwargs) on `num_proc` workers; what each returned, by rank.

    Args:
        fn: any function, a lambda too: it travels by cloudpickle, with what it refers to.
        num_proc: the number of workers; default: spark.default.parallelism. Spark waits until
            so many of its slots are free; where it has fewer in all, it waits for minutes, and then raises an error.
        mode: "ring" or "ps"; default: as the function says, else the ring.
        servers, servers_per_node: in mode ps, as in init().
        env: more variables of the workers.
        spark: the session; default: the active one, else a new one.

    Raises what Spark raises where a task has failed in all attempts.
    """
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    size = None if num_proc is None else _engine.count("num_proc", num_proc)
    variables = {**_engine.texts(env), **_engine.settings(mode, servers, servers_per_node)}
    spark = spark or SparkSession.builder.getOrCreate()
    context = spark.sparkContext
    size = size or context.defaultParallelism
    payload = cloudpickle.dumps((fn, *_engine.arguments(args, kwargs)))
    workers = context.parallelize(range(size), size).barrier()
    # Spark starts a barrier stage again only where another stage follows: this one gathers results.
    pairs = workers.mapPartitions(_task(payload, variables)).partitionBy(1).collect()
    return [_engine.unpickled(cloudpickle, data, kind, rank, size) for rank, (kind, data) in sorted(pairs)]


class HorovodRunner:
    """As that of sparkdl: HorovodRunner(np=4).run(main, **kwargs).

    Args:
        np: the number of workers. Below 0: -np processes on the driver's host, without Spark, to
            try a function out. 0: as many as Spark has slots.
        mode, servers, servers_per_node, env: as in run().
    """

    def __init__(self, *, np: int, driver_log_verbosity: str = "log_callback_only", **settings: Any):
        taken = inspect.signature(run if np >= 0 else _here.run_by).parameters.keys()
        known = taken & {"mode", "servers", "servers_per_node", "env", "spark"}
        for name in sorted(settings.keys() - known):
            raise TypeError(f"HorovodRunner(np={np}, {name}=...): its settings are {', '.join(sorted(known))}")
        self._np, self._settings = np, settings

    def run(self, main: Callable[..., Any], **kwargs: Any) -> Any:
        """What `main` returned in worker 0."""
        if self._np < 0:
            from pyspark import cloudpickle

            return _here.run_by(cloudpickle, main, (), kwargs, -self._np, **self._settings)[0]
        return run(main, (), kwargs, self._np or None, **self._settings)[0]
