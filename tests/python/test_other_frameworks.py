"""psring.jax and psring.keras, where these are installed."""

import importlib.util

import pytest

from ranks import run


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
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
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


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras(backend):
    for package in ("keras", backend):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    for out in run(under_keras, env={"KERAS_BACKEND": backend}, timeout=200):
        assert all(out), out
