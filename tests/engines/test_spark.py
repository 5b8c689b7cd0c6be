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


def test_without_spark_a_function_may_have_two_jobs(environment, monkeypatch):
    monkeypatch.setenv("PSRING_LIBRARY", environment["PSRING_LIBRARY"])
    assert psring.spark.HorovodRunner(np=-2).run(sums_of_two_jobs) == [2, 2]


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
