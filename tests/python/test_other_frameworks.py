"""psring.jax and psring.keras, where these are installed."""

import importlib.util
import os

import pytest

from ranks import HERE, run, run_script


EXAMPLES = os.path.join(HERE, "..", "..", "examples", "python")


def needs(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: ./psring test --frameworks installs it")


def under_jax():
    import jax
    import jax.numpy as jnp

    import psring.jax as ps

    ps.init()
    me = ps.rank()
    tree = {"a": jnp.full((2,), float(me)), "b": [jnp.full((1, 2), 2.0 * me, dtype=jnp.bfloat16)]}
    out = ps.allreduce(tree)
    results = [out["a"].tolist() == [0.5, 0.5], out["b"][0].tolist() == [[1.0, 1.0]]]
    results.append(ps.broadcast(tree, 1)["a"].tolist() == [1.0, 1.0])

    @jax.jit
    def step(w, x):
        grads = jax.grad(lambda w: jnp.sum(w * x))(w)
        return w - ps.allreduce(grads, name="grads")

    w = jnp.zeros(2)
    for _ in range(3):
        w = step(w, jnp.full((2,), float(me)))
    return results + [w.tolist() == [-1.5, -1.5]]


def test_jax_eager_and_jit():
    needs("jax")
    for out in run(under_jax, timeout=200):
        assert all(out), out


def under_keras():
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    keras.utils.set_random_seed(ps.rank())
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    x = np.random.RandomState(ps.rank()).randn(32, 3).astype("float32")
    model.fit(x, x[:, :2], batch_size=8, epochs=2, verbose=0, shuffle=False, callbacks=[ps.BroadcastCallback()])
    weights = ps.allgather_object([np.asarray(keras.ops.convert_to_numpy(w)) for w in model.weights])
    return [all((a == b).all() for a, b in zip(*weights)), int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 8]


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_keras(backend):
    needs("keras", backend)
    for out in run(under_keras, env={"KERAS_BACKEND": backend}, timeout=200):
        assert all(out), out


def callbacks():
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.SGD(0.4)), loss="mse")
    rates = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(np.asarray(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))))

    x = np.random.RandomState(ps.rank()).randn(32, 3).astype("float32")
    history = model.fit(
        x, x[:, :2], batch_size=8, epochs=3, verbose=0,
        callbacks=[ps.BroadcastCallback(), ps.LearningRateWarmupCallback(0.4, 2.0), ps.MetricAverageCallback(), Watch()],
    )  # fmt: skip
    return rates, history.history["loss"]


def test_keras_callbacks():
    needs("keras", "jax")
    (rates, losses), (_, others) = run(callbacks, env={"KERAS_BACKEND": "jax"}, timeout=200)
    assert rates[0] == pytest.approx(0.2) and rates[4] == pytest.approx(0.3)
    assert rates[8:] == pytest.approx([0.4] * 4) and rates == sorted(rates)
    assert losses == others  # the mean of both, though their data differ


@pytest.mark.parametrize("script, packages", [("keras_mnist.py", ("keras", "jax")), ("jax_mlp.py", ("jax",))])
def test_example(script, packages):
    needs(*packages)
    ranks = run_script(
        os.path.join(EXAMPLES, script), 2, args=["--epochs=1"], env={"KERAS_BACKEND": "jax"}, timeout=200
    )
    for rank, (code, out, err) in enumerate(ranks):
        assert code == 0, err
        assert ("accuracy" in out) == (rank == 0)
