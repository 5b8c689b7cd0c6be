"""psring.keras.SyncBatchNormalization: its statistics and gradients are those of all ranks' batches, on every backend."""

import pytest

from ranks import run
from test_keras_fused import BACKENDS
from test_other_frameworks import needs


def model_of(layer, momentum):
    """Two of them, so that their calls have an order."""
    import keras

    keras.utils.set_random_seed(3)
    return keras.Sequential([
        keras.Input((6,)), keras.layers.Dense(8), layer(momentum=momentum), keras.layers.Activation("tanh"),
        keras.layers.Dense(4), layer(momentum=momentum), keras.layers.Dense(2),
    ])  # fmt: skip


def trained(layer, optimizer, x, y, batch):
    import numpy as np

    model = model_of(layer, 0.5)
    model.compile(optimizer, loss="mse")
    model.fit(x, y, batch_size=batch, epochs=2, shuffle=False, verbose=0)
    return [np.asarray(weight) for weight in model.get_weights()], model


def all_ways():
    import os

    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    me, found = ps.rank(), {}
    random = np.random.default_rng(0)
    x = random.standard_normal((32, 6)).astype("float32") * [1, 2, 3, 4, 5, 6]
    y = np.sin(x[:, :2])
    plain, _ = trained(keras.layers.BatchNormalization, keras.optimizers.SGD(0.1), x, y, 16)
    # Of each batch of 16, each rank has a half.
    mine = [i for i in range(32) if i // 8 % 2 == me]
    optimizer = ps.DistributedOptimizer(keras.optimizers.SGD(0.1))
    weights, model = trained(ps.SyncBatchNormalization, optimizer, x[mine], y[mine], 8)
    found["trains"] = all(np.allclose(a, b, 1e-4, 1e-5) for a, b in zip(weights, plain))

    path = os.path.abspath("model.keras")
    if me == 0:
        model.save(path)
    ps.barrier()
    again = keras.saving.load_model(path)
    found["saved"] = type(again.layers[1]) is ps.SyncBatchNormalization
    found["evaluates alone"] = me == 1 or np.allclose(again.predict(x, verbose=0), model.predict(x, verbose=0))

    def statistics(layer, values, mask=None):
        layer = layer(momentum=0.0, axis=-1)
        out = layer(keras.ops.convert_to_tensor(values), training=True, mask=mask)
        convert = keras.ops.convert_to_numpy
        return convert(out), convert(layer.moving_mean), convert(layer.moving_variance)

    images = random.standard_normal((5, 3, 4)).astype("float32")
    rows = slice(0, 4) if me == 0 else slice(4, 5)  # uneven
    mask = random.random((5, 3)) < 0.7
    for name, of_all, of_mine in (("uneven", None, None), ("masked", mask, mask[rows])):
        expected = statistics(keras.layers.BatchNormalization, images, of_all)
        got = statistics(ps.SyncBatchNormalization, images[rows], of_mine)
        found[name] = np.allclose(got[0], expected[0][rows], 1e-4, 1e-5) and all(
            np.allclose(a, b, 1e-4, 1e-5) for a, b in zip(got[1:], expected[1:])
        )
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_statistics_and_gradients_are_those_of_all_ranks(backend, tmp_path, monkeypatch):
    needs("keras", backend)
    monkeypatch.chdir(tmp_path)
    for found in run(all_ways, env={"KERAS_BACKEND": backend}, timeout=200):
        assert all(found.values()), found
