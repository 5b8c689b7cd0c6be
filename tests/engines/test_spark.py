"""Jobs in the barrier stages of a real Spark, whose executors are processes of their own."""

import os
import signal
import sys
import time

import pytest

import page
import train
from conftest import assert_same_training, come_to

pyspark = pytest.importorskip("pyspark", reason="no pyspark: ./psring test --engines installs it")

import psring  # noqa: E402
import psring.spark  # noqa: E402


@pytest.fixture(scope="module")
def spark(environment, tmp_path_factory):
    """Two executors of two slots each."""
    from pyspark.sql import SparkSession

    # Spark's driver tells executors which python to start.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local-cluster[2,2,1024]").config("spark.ui.enabled", "false")
    for name in ("PYTHONPATH", "PSRING_LIBRARY", "OMP_NUM_THREADS", "HOME"):
        builder = builder.config(f"spark.executorEnv.{name}", environment[name])
    builder = builder.config("spark.executorEnv.PYTHONPATH", os.pathsep.join([environment["PYTHONPATH"], train.HERE]))
    builder = builder.config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
    session = builder.getOrCreate()
    yield session
    session.stop()


def trained(folder, **wishes):
    """A function that Spark sends: it does not exist where the executors are."""
    psring.init()
    return train.train(folder, **wishes), os.getpid(), os.getppid()


@pytest.mark.parametrize("wishes", [{}, {"mode": "ps", "servers": 2}, {"mode": "ps", "servers_per_node": 1}])
def test_a_function_trains_in_a_barrier_stage(spark, expected, tmp_path, wishes):
    results = psring.spark.run(trained, (str(tmp_path),), num_proc=3, spark=spark, **wishes)
    for result, _, _ in results:
        assert_same_training(result, expected(3))
        assert result["mode"] == wishes.get("mode", "ring")
    assert len({pid for _, pid, _ in results}) == 3
    assert len({parent for _, _, parent in results}) == 2, "one executor ran all workers"


def test_lambdas_and_what_they_refer_to_travel(spark):
    def main(factor):
        import psring

        psring.init()
        return factor * psring.sum(psring.rank() + 1)

    assert psring.spark.HorovodRunner(np=2).run(lambda factor: main(factor), factor=10) == 30


def test_without_spark_the_runner_starts_processes_here(environment, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("PSRING_LIBRARY", environment["PSRING_LIBRARY"])
    result, _, _ = psring.spark.HorovodRunner(np=-3, mode="ps", servers=2).run(trained, folder=str(tmp_path))
    assert_same_training(result, expected(3))
    assert result["servers"] == 2


def sums_of_two_jobs():
    sums = []
    for _ in range(2):
        psring.init()
        sums.append(psring.sum(1))
        psring.shutdown()
    return sums


def test_an_unknown_setting_is_refused():
    with pytest.raises(TypeError, match=r"HorovodRunner\(np=-2, server=...\).*servers"):
        psring.spark.HorovodRunner(np=-2, server=2)


def test_without_spark_a_function_may_have_two_jobs(environment, monkeypatch):
    monkeypatch.setenv("PSRING_LIBRARY", environment["PSRING_LIBRARY"])
    assert psring.spark.HorovodRunner(np=-2).run(sums_of_two_jobs) == [2, 2]


def fails_in_worker_1():
    if os.environ["PSRING_RANK"] == "1":
        raise FileNotFoundError("no train.npz here")
    psring.init()


def raises_in_worker_1():
    psring.init()
    if psring.rank() == 1:
        raise ValueError("not my data")
    psring.barrier()


def is_killed_in_worker_1():
    psring.init()
    if psring.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    psring.barrier()


@pytest.mark.parametrize(
    "function, words",
    [
        (fails_in_worker_1, "worker 1 of 2 failed: FileNotFoundError: no train.npz here"),
        (raises_in_worker_1, "worker 1 of 2 failed: ValueError: not my data"),
        (is_killed_in_worker_1, "worker 1 of 2 was ended by SIGKILL"),
    ],
)
def test_without_spark_the_first_failure_is_named(environment, monkeypatch, function, words):
    """Not that of worker 0, which waits for the other in vain."""
    monkeypatch.setenv("PSRING_LIBRARY", environment["PSRING_LIBRARY"])
    begin = time.monotonic()
    with pytest.raises(psring.PsringError, match=words):
        psring.spark.HorovodRunner(np=-2).run(function)
    assert time.monotonic() - begin < 40  # the join timeout is 60 s


def one_task_calls_no_init(folder):
    rank = os.environ["PSRING_RANK"]
    if rank == "1":
        return time.sleep(15)  # as one that loads for ever
    try:
        psring.init(join_timeout_s=3)
    except (psring.PsringError, TimeoutError) as error:
        with open(f"{folder}/{rank}", "w") as file:
            file.write(str(error))
        raise


def test_init_does_not_wait_for_ever_for_a_task_that_never_calls_it(spark, tmp_path):
    with pytest.raises(Exception):
        psring.spark.run(one_task_calls_no_init, (str(tmp_path),), num_proc=3, spark=spark)
    assert "not all tasks of the stage have called init() within 3 s" in (tmp_path / "2").read_text()


def test_the_page_of_a_running_job_shows_all_workers(spark, expected, tmp_path):
    address = page.free_address()

    def start():
        env = page.variables(tmp_path, address)
        return psring.spark.run(trained, (str(tmp_path),), {"meet_at": 5}, 3, spark=spark, env=env)

    result, _, _ = page.assert_shows_workers_here(start, tmp_path, address, 3)[0]
    assert_same_training(result, expected(3))


def test_a_task_that_fails_is_tried_again_from_the_checkpoint(spark, expected, tmp_path):
    env = page.variables(tmp_path, page.free_address())  # a port that the second try finds free again
    results = psring.spark.run(trained, (str(tmp_path),), {"fail_at": 20}, num_proc=3, spark=spark, env=env)
    assert results[0][0]["resumed_at"] >= 19
    assert_same_training(results[0][0], expected(3))


def test_a_task_that_fails_always_ends_the_stage_with_its_exception(spark):
    def main():
        import psring

        psring.init()
        if psring.rank() == 1:
            raise ValueError("no such data")
        psring.barrier()

    with pytest.raises(Exception, match="ValueError: no such data"):
        psring.spark.run(main, num_proc=2, spark=spark)
    with pytest.raises(ValueError, match="num_proc=-1: it is a whole number from 1"):
        psring.spark.run(main, num_proc=-1, spark=spark)


def test_a_killed_worker_is_named_and_the_stage_tried_again(spark, expected, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        running = pool.submit(psring.spark.run, trained, (str(tmp_path),), {"meet_at": 20}, 3, spark=spark)
        pid = come_to(tmp_path, 20, 3, running)[2]
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        results = running.result(timeout=120)
    print(f"{time.monotonic() - killed:.1f} s from the kill to the end of the stage that was tried again")
    assert results[0][0]["resumed_at"] >= 19
    assert_same_training(results[0][0], expected(3))
