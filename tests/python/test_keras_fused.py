"""psring.keras's update="fused": servers or the ring apply the optimizer, on every backend."""

import json
import os
import subprocess
import sys
import zlib

import pytest

from ranks import PROGRAM, PYTHONPATH, models_in_memory, run, run_script
from test_other_frameworks import EXAMPLES, needs

BACKENDS = ["torch", "jax", "tensorflow"]


def optimizers():
    """By name: a new optimizer, and whether a callback changes its rate."""
    import keras

    optimizers, schedules = keras.optimizers, keras.optimizers.schedules
    weights_alone = optimizers.SGD(0.1, weight_decay=0.5)
    weights_alone.exclude_from_weight_decay(var_names=["bias"])
    # An epsilon as large as gradients: it shows where the formula has it.
    return {
        "decay of weights alone": (weights_alone, False),
        "sgd": (optimizers.SGD(0.1), False),
        "decay": (optimizers.SGD(0.1, weight_decay=0.1), True),
        "momentum": (optimizers.SGD(schedules.ExponentialDecay(0.1, 1, 0.7), momentum=0.9), False),
        "nesterov": (optimizers.SGD(0.1, momentum=0.8, nesterov=True), True),
        "adamw": (optimizers.AdamW(0.02, beta_2=0.99, epsilon=1e-2, weight_decay=0.3), True),
        "adam's decay": (optimizers.Adam(0.02, beta_2=0.99, epsilon=1e-2, weight_decay=0.3), False),
        "adam": (optimizers.Adam(0.02, beta_1=0.8, beta_2=0.99, epsilon=1e-2), False),
        "adam's rate": (optimizers.Adam(schedules.PiecewiseConstantDecay([3], [0.05, 0.01]), epsilon=1e-3), False),
    }


def network(seed):
    import keras

    keras.utils.set_random_seed(seed)
    layers = [keras.Input((6,)), keras.layers.Dense(20, activation="tanh"), keras.layers.Dense(2)]
    return keras.Sequential(layers)


def data(rank, samples=48):
    import numpy as np

    random = np.random.default_rng(rank)
    x = random.standard_normal((samples, 6)).astype("float32")
    return x, np.sin(x[:, :2])


def weights(model):
    import keras
    import numpy as np

    return np.concatenate([np.ravel(keras.ops.convert_to_numpy(weight)) for weight in model.weights])


def fitted(optimizer, changes_rate=False, broadcast=True):
    """A model after six compiled steps."""
    import keras

    import psring.keras as ps

    class Halve(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if changes_rate and batch == 3:
                self.model.optimizer.learning_rate = 0.05

    model = network(ps.rank())
    model.compile(optimizer=optimizer, loss="mse")
    callbacks = [Halve(), *([ps.BroadcastCallback()] if broadcast else [])]
    model.fit(*data(ps.rank()), batch_size=8, verbose=0, shuffle=False, callbacks=callbacks)
    return model


def all_ways():
    """By optimizer: iterations, and weights after fused updates and after local ones."""
    import keras

    import psring.keras as ps

    ps.init(bucket_mb=0.0005)
    fused, local = optimizers(), optimizers()
    results = {}
    for name, (optimizer, changes) in fused.items():
        model = fitted(ps.DistributedOptimizer(optimizer, update="fused"), changes)
        end = weights(model)
        model.optimizer.synchronize_parameters()  # where steps are synchronous it changes nothing
        assert (weights(model) == end).all()
        other = fitted(ps.DistributedOptimizer(local[name][0], update="local"), changes)
        iterations = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
        results[name] = iterations, end.tolist(), weights(other).tolist()
    optimizer = ps.DistributedOptimizer(keras.optimizers.Adam(0.01), update="fused", compress="fp16")
    results["weights of rank 0 in the first step"] = 6, weights(fitted(optimizer, broadcast=False)).tolist(), None
    return results


@pytest.mark.parametrize("backend", BACKENDS)
def test_servers_and_ring_end_with_the_same_bits_and_with_keras_own_steps(backend, tmp_path):
    needs("keras", backend)
    env = {"KERAS_BACKEND": backend, "PSRING_METRICS_DIR": str(tmp_path)}
    ring = run(all_ways, env=env, timeout=300)
    for name, (iterations, fused, local) in ring[0].items():
        assert iterations == 6
        assert ring[1][name][1] == fused, name
        assert local is None or fused == pytest.approx(local, rel=1e-4, abs=2e-6), name
    assert len({tuple(fused) for _, fused, _ in ring[0].values()}) == len(ring[0])
    for servers in ("1", "2"):
        ps = run(all_ways, mode="ps", env={"KERAS_BACKEND": backend, "PSRING_SERVERS": servers}, timeout=300)
        assert ps == ring
    if not os.environ.get("PSRING_LIBRARY"):
        return  # the stand-in writes no files
    lines = [json.loads(line) for line in (tmp_path / "worker-0.jsonl").read_text().splitlines()]
    models = [line["num_parameters"] for line in lines if line["event"] == "model"]
    assert models == [6 * 20 + 20 + 20 * 2 + 2] * 19
    assert lines[-1]["event"] == "end" and lines[-1]["step"] == 19 * 6 and lines[-1]["weights_crc32"] > 0


def resumed():
    """By optimizer: weights after six steps; of which the last three are those of a model that rank 0 has
    loaded, as a whole, or its weights; and what the optimizer's variables then hold, beside Keras's own."""
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    x, y = data(ps.rank())
    results = {}
    for name in ("momentum", "nesterov", "adamw", "adam"):

        def fit(model, begin, end):
            callbacks = [ps.BroadcastCallback()]
            model.fit(x[begin:end], y[begin:end], batch_size=8, verbose=0, shuffle=False, callbacks=callbacks)
            model.optimizer.synchronize_state()
            state = [np.ravel(keras.ops.convert_to_numpy(v)) for v in model.optimizer.variables]
            return weights(model).tolist(), np.concatenate(state).tolist()

        def compiled(update):
            model = network(ps.rank())
            model.compile(optimizer=ps.DistributedOptimizer(optimizers()[name][0], update=update), loss="mse")
            return model

        path = os.path.join(os.environ["FOLDER"], f"{name} of {ps.rank()}")
        whole, local, first, weights_alone = compiled("fused"), compiled("local"), compiled("fused"), compiled("fused")
        ends = [fit(whole, 0, 48), fit(local, 0, 48)]
        fit(first, 0, 24)
        if ps.rank() == 0:
            first.save(path + ".keras")
            first.save_weights(path + ".weights.h5")
            loaded = keras.models.load_model(path + ".keras")
            weights_alone.optimizer.build(weights_alone.trainable_variables)
            weights_alone.load_weights(path + ".weights.h5")
            loaded.optimizer = ps.DistributedOptimizer(loaded.optimizer, update="fused")
        else:
            loaded = compiled("fused")
        ends += [fit(loaded, 24, 48), fit(weights_alone, 24, 48)]
        results[name] = ends
    return results


@pytest.mark.parametrize("mode", ["ring", "ps"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_that_was_saved_with_its_state_goes_on_as_if_it_had_not_stopped(backend, mode, tmp_path):
    needs("keras", backend)
    for ends in run(resumed, mode=mode, env={"KERAS_BACKEND": backend, "FOLDER": str(tmp_path)}, timeout=300):
        for name, (whole, local, *after) in ends.items():
            for fused, own in zip(whole, local):
                assert fused == pytest.approx(own, rel=1e-4, abs=2e-6), name
            for loaded in after:
                assert loaded[0] == pytest.approx(whole[0], rel=1e-5, abs=1e-7), name
                assert loaded[1] == pytest.approx(whole[1], rel=1e-5, abs=1e-7), name


def separable():
    """(loss before, loss after, checksum of weights, of Adam's velocities) of three classes that a line
    separates from each other."""
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    random = np.random.default_rng(ps.rank())
    y = random.integers(0, 3, 300)
    x = (0.3 * random.standard_normal((300, 6)) + 2 * np.eye(6)[y]).astype("float32")
    model = network(ps.rank())
    model.add(keras.layers.Dense(3))
    model.compile(
        optimizer=ps.DistributedOptimizer(keras.optimizers.Adam(0.01)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    before = model.evaluate(x, y, verbose=0)
    model.fit(x, y, batch_size=20, epochs=6, verbose=0)
    model.optimizer.synchronize_parameters()
    model.optimizer.synchronize_state()
    velocities = [np.array(keras.ops.convert_to_numpy(v)) for v in model.optimizer._velocities]
    assert all(velocity.any() for velocity in velocities)
    crcs = zlib.crc32(weights(model).tobytes()), zlib.crc32(b"".join(v.tobytes() for v in velocities))
    return before, model.evaluate(x, y, verbose=0), crcs


@pytest.mark.parametrize("sync", ["async", "ssp:2"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_three_workers_train_by_updates_that_wait_for_nobody(backend, sync):
    needs("keras", backend)
    env = {"KERAS_BACKEND": backend, "PSRING_SYNC": sync, "PSRING_SERVERS": "2"}
    ranks = run(separable, size=3, mode="ps", env=env, timeout=300)
    assert all(after < 0.1 < 0.7 < before for before, after, _ in ranks), ranks
    assert len({crcs for _, _, crcs in ranks}) == 1


def with_embedding():
    """Weights after fused updates and after local ones; one variable gets no gradient."""
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    class WithUnused(keras.layers.Dense):
        def build(self, shape):
            self.unused = self.add_weight(shape=(2,), name="unused")
            super().build(shape)

    x = np.random.default_rng(0).integers(0, 10, (32, 4))
    results = []
    for update in ("fused", "local"):
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Embedding(10, 3), keras.layers.Flatten(), keras.layers.BatchNormalization()]
        model = keras.Sequential([keras.Input((4,), dtype="int32"), *layers, WithUnused(1)])
        optimizer = keras.optimizers.Adam(0.01, epsilon=1e-3)
        model.compile(optimizer=ps.DistributedOptimizer(optimizer, update=update), loss="mse")
        model.fit(x, x.sum(1), batch_size=8, verbose=0, shuffle=False)
        model.train_on_batch(x[:8], x[:8].sum(1))
        results.append(weights(model).tolist())
    return results


@pytest.mark.parametrize("backend", BACKENDS)
def test_sparse_gradients_and_missing_ones(backend):
    needs("keras", backend)
    [[fused, local]] = run(with_embedding, size=1, mode="ps", env={"KERAS_BACKEND": backend}, timeout=200)
    assert fused == pytest.approx(local, rel=1e-4, abs=2e-6)


def saved_and_loaded():
    """By update: classes of the loaded model's optimizer, and whether its weights are those saved."""
    import keras

    import psring.keras as ps

    ps.init()
    results = []
    for update in ("local", "fused"):
        path = os.path.join(os.environ["FOLDER"], update)
        model = fitted(ps.DistributedOptimizer(keras.optimizers.Adam(0.01), update=update))
        model.save(path + ".keras")
        model.save_weights(path + ".weights.h5")
        loaded = keras.models.load_model(path + ".keras")
        other = network(7)
        other.load_weights(path + ".weights.h5")
        kinds = [kind.__name__ for kind in type(loaded.optimizer).__mro__]
        results.append((kinds, all((weights(m) == weights(model)).all() for m in (loaded, other))))
        loaded.fit(*data(0), verbose=0)
    return results


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_saved_model_is_loaded_with_the_optimizer_that_it_had(backend, tmp_path):
    needs("keras", backend)
    [results] = run(saved_and_loaded, size=1, env={"KERAS_BACKEND": backend, "FOLDER": str(tmp_path)}, timeout=200)
    for kinds, same in results:
        assert same and kinds[0] == "Adam" and "_Distributed" not in kinds, kinds


def models_after_each_other():
    """After each of three models: how many have memory of the library's, and whether its weights stay."""
    import keras

    import psring.keras as ps

    ps.init()
    left = []
    for _ in range(3):
        optimizer = ps.DistributedOptimizer(keras.optimizers.Adam(0.01), update="fused")
        model = fitted(optimizer)
        before = weights(model)
        optimizer.close()
        left.append((models_in_memory(), bool((weights(model) == before).all())))
    try:
        model.fit(*data(0), verbose=0)
    except Exception as error:
        left.append("has been closed" in str(error))
    return left


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_optimizer_that_is_closed_frees_its_memory(backend):
    needs("keras", backend)
    if not os.environ.get("PSRING_LIBRARY"):
        pytest.skip("PSRING_LIBRARY is not set")
    for left in run(models_after_each_other, env={"KERAS_BACKEND": backend}, timeout=200):
        assert [kept for _, kept in left[:3]] == [True] * 3 and left[3]
        assert len({number for number, _ in left[:3]}) == 1, left


# ---- Whole programs ----------------------------------------------------------


def test_the_example_trains_through_parameter_servers():
    needs("keras", "jax", "torch")
    env = {"KERAS_BACKEND": "jax", "PSRING_SYNC": "async", "PSRING_SERVERS": "2"}
    script = os.path.join(EXAMPLES, "keras_mnist.py")
    for rank, (code, out, err) in enumerate(run_script(script, 4, mode="ps", env=env, timeout=300, fresh=True)):
        assert code == 0, err
        assert rank > 0 or float(out.split("accuracy ")[1].split("%")[0]) > 50, out


SCRIPT = """
import os, keras, numpy as np, psring.keras as ps

def main():
    ps.init()
    keras.utils.set_random_seed(int(os.environ.get("PSRING_SEED", 0)))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    x = np.random.default_rng(ps.rank()).standard_normal((64, 4)).astype("float32")
    for epoch in range(2):
        model.fit(x, x.sum(1), batch_size=8, verbose=0, shuffle=False)
        model.optimizer.synchronize_parameters()
        ps.log(accuracy=1 / (1 + model.evaluate(x, x.sum(1), verbose=0)))

main()
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_compare_has_steps_and_weights_of_a_keras_script(backend, tmp_path):
    needs("keras", backend)
    if not os.environ.get("PSRING_LIBRARY") or not os.path.exists(PROGRAM):
        pytest.skip("PSRING_LIBRARY is not set, or the programs are not built: ./psring build")
    (tmp_path / "train.py").write_text(SCRIPT)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PSRING_")}
    env = {"PYTHONPATH": PYTHONPATH, "PSRING_LIBRARY": os.environ["PSRING_LIBRARY"], "KERAS_BACKEND": backend}
    command = [PROGRAM, "compare", "--modes=ring,ps-bsp,ps-async", "--workers=2", f"--out={tmp_path}/study", "--"]
    ran = subprocess.run(
        [*command, sys.executable, str(tmp_path / "train.py")], env={**kept, **env, "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads((tmp_path / "study" / "report.json").read_text())
    runs = {run["point"]["mode"]: run for run in report["runs"]}
    for run_of in runs.values():
        assert run_of["num_steps"] == 16 and run_of["num_parameters"] == 5
        assert [epoch["step"] for epoch in run_of["epochs"]] == [8, 16]
    assert runs["ring"]["weights_crc32"] is not None
    assert runs["ring"]["weights_crc32"] == runs["ps-bsp"]["weights_crc32"] != runs["ps-async"]["weights_crc32"]
    assert report["identical_weights"] is True
