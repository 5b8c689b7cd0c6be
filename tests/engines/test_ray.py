"""Jobs of actors on a real Ray of two nodes, and inside Ray Train's workers."""

import os
import signal
import subprocess
import sys
import time

import pytest

import page
import train
from conftest import assert_same_training, come_to

ray = pytest.importorskip("ray", reason="no ray: ./psring test --engines installs it")

import psring  # noqa: E402
import psring.ray  # noqa: E402


@pytest.fixture(scope="module")
def cluster(environment):
    """Two nodes of two slots each."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    kept = ("PSRING_LIBRARY", "OMP_NUM_THREADS", "HOME")
    variables = {name: environment[name] for name in kept}
    variables["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], train.HERE])
    ray.init(address=cluster.address, runtime_env={"env_vars": variables}, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def executor(cluster):
    executors = []

    def start(size, **more):
        executors.append(psring.ray.RayExecutor(size, strategy="SPREAD", start_timeout_s=60, **more))
        executors[-1].start()
        return executors[-1]

    yield start
    for each in executors:
        each.shutdown()


def trained(folder, **wishes):
    psring.init()
    node = ray.get_runtime_context().get_node_id()
    return train.train(folder, **wishes), os.getpid(), node


@pytest.mark.parametrize("wishes", [{}, {"mode": "ps", "servers": 2}, {"mode": "ps", "servers_per_node": 1}])
def test_actors_train_on_two_nodes(executor, expected, tmp_path, wishes):
    results = executor(3, **wishes).run(trained, (str(tmp_path),))
    for result, _, _ in results:
        assert_same_training(result, expected(3))
        assert result["mode"] == wishes.get("mode", "ring")
        assert result["servers"] == (2 if wishes else 0)
    assert len({pid for _, pid, _ in results}) == 3
    assert len({node for _, _, node in results}) == 2


def test_an_executor_runs_one_function_after_another(executor):
    def main(factor):
        psring.init()
        return factor * psring.sum(psring.rank() + 1)

    two = executor(2)
    assert two.run(main, (10,)) == [30, 30]
    assert two.run(main, kwargs={"factor": 100}) == [300, 300]
    assert two.execute(lambda: os.getpid()) == two.execute(lambda: os.getpid())
    assert two.execute(lambda: two is not None) == [True, True]


def test_an_exception_ends_the_run_with_it(executor):
    def main():
        psring.init()
        if psring.rank() == 1:
            raise ValueError("no such data")
        psring.barrier()

    # Of the worker that raised it, and not of one that failed with it.
    with pytest.raises(ValueError, match="no such data"):
        executor(3).run(main)


def test_a_second_run_at_the_same_time_is_refused(executor):
    from concurrent.futures import ThreadPoolExecutor

    two = executor(2)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(two.run, lambda: time.sleep(3))
        time.sleep(1)
        with pytest.raises(RuntimeError, match="its workers run another function"):
            two.run(os.getpid)
        assert running.result(timeout=60) == [None, None]


def test_a_killed_worker_ends_the_run_and_the_next_one_resumes(executor, expected, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    # The page's port is free again for the next run.
    three = executor(3, env=page.variables(tmp_path, page.free_address()))
    with ThreadPoolExecutor() as pool:
        running = pool.submit(three.run, trained, (str(tmp_path),), {"meet_at": 20})
        pid = come_to(tmp_path, 20, 3, running)[2]
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ray.exceptions.RayError) as error:
            running.result(timeout=60)
    print(f"{time.monotonic() - killed:.1f} s after the kill: {error.value}")
    three.start()
    result, _, _ = three.run(trained, (str(tmp_path),))[0]
    assert result["resumed_at"] >= 19
    assert_same_training(result, expected(3))


def test_the_page_of_a_running_job_shows_all_workers(executor, expected, tmp_path):
    address = page.free_address()
    three = executor(3, env=page.variables(tmp_path, address))

    def start():
        return three.run(trained, (str(tmp_path),), {"meet_at": 5})

    result, _, _ = page.assert_shows_workers_here(start, tmp_path, address, 3)[0]
    assert_same_training(result, expected(3))


def test_an_executor_without_workers_is_refused():
    for wrong in (0, "2", 1.5):
        with pytest.raises(ValueError, match=f"num_workers={wrong!r}: it is a whole number from 1"):
            psring.ray.RayExecutor(wrong)


def test_an_executor_that_nobody_has_any_more_leaves_its_room_to_others(executor):
    for _ in range(3):  # as a notebook's cell that is run again
        four = psring.ray.RayExecutor(4, start_timeout_s=60)
        four.start()
        assert four.run(os.getenv, ("PSRING_SIZE",)) == ["4"] * 4
    assert four.execute(lambda: four is not None and psring.is_initialized()) == [False] * 4
    del four
    executor(4)


# Of its own, as it shuts Ray down.
def test_an_executor_survives_the_end_of_its_ray(environment):
    code = """
import ray, psring.ray
two = psring.ray.RayExecutor(2)
for _ in range(2):
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    two.start()
    print(two.run(len, ("word",)))
    ray.shutdown()
two.shutdown()
print(ray.is_initialized())
"""
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100)
    assert ran.stdout == "[4, 4]\n[4, 4]\nFalse\n", ran.stderr


def test_too_few_slots_are_an_error(executor, monkeypatch, capsys):
    monkeypatch.setattr(psring.ray, "_SAID_AFTER_S", 1)
    with pytest.raises(TimeoutError, match="no room for 9 workers"):
        many = psring.ray.RayExecutor(9, start_timeout_s=2)
        many.start()
    assert "psring: waits for room for 9 workers" in capsys.readouterr().err


def test_the_workers_of_ray_train_find_each_other(cluster, expected, tmp_path):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def main(config):
        psring.init(mode="ps", servers=2)
        train.train(config["folder"])
        psring.shutdown()

    DataParallelTrainer(
        main, train_loop_config={"folder": str(tmp_path)},
        scaling_config=ScalingConfig(num_workers=3), run_config=RunConfig(storage_path=str(tmp_path / "ray")),
    ).fit()  # fmt: skip
    from conftest import result_in

    assert_same_training(result_in(tmp_path), expected(3))
    assert result_in(tmp_path)["servers"] == 2


def test_workers_of_ray_train_do_not_wait_for_one_that_never_calls_init(cluster, tmp_path):
    from ray.train import RunConfig, ScalingConfig, get_context
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def main(config):
        rank, others = get_context().get_world_rank(), [os.path.join(config["folder"], name) for name in "02"]
        if rank == 1:
            for _ in range(300):
                if all(map(os.path.exists, others)):
                    return
                time.sleep(0.1)
            raise AssertionError("the others wait")
        try:
            psring.init(join_timeout_s=3)
        except Exception as error:
            with open(os.path.join(config["folder"], str(rank)), "w") as file:
                file.write(f"{type(error).__name__}: {error}")

    DataParallelTrainer(
        main, train_loop_config={"folder": str(tmp_path)},
        scaling_config=ScalingConfig(num_workers=3), run_config=RunConfig(storage_path=str(tmp_path / "ray")),
    ).fit()  # fmt: skip
    assert (tmp_path / "2").read_text() == "TimeoutError: not all workers of Ray Train have called init() within 3 s"
    assert "worker" in (tmp_path / "0").read_text()
