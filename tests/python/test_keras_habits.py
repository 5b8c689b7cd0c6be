"""What Keras lets a script do that could part the ranks, or lose their state: it works, or is told."""

import os

import pytest

from ranks import run
from test_keras_fused import BACKENDS, data, network, weights
from test_other_frameworks import needs


def _mean_weights(model):
    return [float(weight.sum()) for weight in model.get_weights()]


def wrap_after_a_fit(update):
    """A model that has trained a little by itself, as for a quick check."""
    import keras

    import psring.keras as ps

    ps.init()
    model = network(ps.rank())
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    model.fit(*data(ps.rank()), batch_size=8, verbose=0)
    model.optimizer = ps.DistributedOptimizer(model.optimizer, update=update)
    model.fit(*data(ps.rank()), batch_size=8, verbose=0, callbacks=[ps.BroadcastCallback()])
    return _mean_weights(model)


@pytest.mark.parametrize("update", ["local", "fused"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_optimizer_that_is_wrapped_after_a_fit_exchanges(backend, update):
    needs("keras", backend)
    first, second = run(wrap_after_a_fit, args=(update,), env={"KERAS_BACKEND": backend}, timeout=200)
    assert first == second


def one_callback_for_several_models():
    import keras

    import psring.keras as ps

    ps.init()
    broadcast, found = ps.BroadcastCallback(), []
    for seed in range(2):
        model = network(10 * seed + ps.rank())
        model.compile(ps.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
        model.fit(*data(ps.rank()), batch_size=8, verbose=0, callbacks=[broadcast])
        found.append(_mean_weights(model))
    return found


def test_a_broadcast_callback_is_for_each_model_that_it_is_given_to():
    needs("keras", "jax")
    first, second = run(one_callback_for_several_models, env={"KERAS_BACKEND": "jax"}, timeout=200)
    assert first == second and first[0] != first[1]


def other_rates():
    import keras

    import psring.keras as ps

    ps.init()
    model = network(0)
    model.compile(ps.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    slow = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * (1 - 0.5 * epoch * ps.rank()))
    try:
        model.fit(*data(ps.rank()), batch_size=8, epochs=2, verbose=0, callbacks=[ps.BroadcastCallback(), slow])
    except Exception as error:  # as each backend wraps it
        return str(error)
    return ""


@pytest.mark.parametrize("backend", BACKENDS)
def test_rates_that_differ_between_ranks_are_an_error_with_local_too(backend):
    needs("keras", backend)
    told = run(other_rates, env={"KERAS_BACKEND": backend}, timeout=200)
    assert all(told) and any("the learning rate is" in error or "other learning" in error for error in told), told


def other_metrics():
    import psring.keras as ps

    ps.init()
    logs = {"loss": 1.0, **({"val_loss": 2.0} if ps.rank() == 0 else {})}
    try:
        ps.MetricAverageCallback().on_epoch_end(0, logs)
    except ps.PsringError as error:
        return str(error)


def test_metrics_of_one_rank_alone_are_named():
    needs("keras", "jax")
    for said in run(other_metrics, env={"KERAS_BACKEND": "jax"}, timeout=200):
        assert "val_loss on rank 0" in said and "give all validation data" in said


def metrics_of_classes():
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    by_class = np.array([0.0, 2.0], "float32") * ps.rank()
    logs = {"f1": by_class, "loss": 0.1, "tensor": keras.ops.convert_to_tensor(by_class), "note": "none", "who": None}
    ps.MetricAverageCallback().on_epoch_end(0, logs)
    return logs["f1"].dtype.name, logs["f1"].tolist(), logs["loss"], logs["tensor"].tolist(), logs["note"], logs["who"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_metrics_that_are_arrays_are_averaged_too(backend):
    needs("keras", backend)
    found = run(metrics_of_classes, env={"KERAS_BACKEND": backend}, timeout=200)
    assert found == [("float32", [0.0, 1.0], 0.1, [0.0, 1.0], "none", None)] * 2


def save_fused(synchronizes):
    """What saving and loading a fused optimizer says."""
    import warnings

    import keras

    import psring.keras as ps

    ps.init()
    model = network(0)
    model.compile(ps.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), update="fused"), loss="mse")
    model.fit(*data(ps.rank()), batch_size=8, verbose=0)
    if synchronizes:
        model.optimizer.synchronize_state()
    path = f"{os.environ['TMPDIR']}/model{ps.rank()}.keras"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.save(path)
        loaded = keras.saving.load_model(path)
        ps.DistributedOptimizer(loaded.optimizer, update="fused")
    return [str(w.message) for w in caught if "synchronize_state" in str(w.message)]


def test_a_state_that_is_not_saved_is_told(tmp_path):
    needs("keras", "jax")
    env = {"KERAS_BACKEND": "jax", "TMPDIR": str(tmp_path)}
    assert run(save_fused, args=(True,), env=env, timeout=200) == [[], []]
    first, second = run(save_fused, args=(False,), env=env, timeout=200)
    assert ["is not in what is saved" in word for word in first] == [True, False] and "all of its" in first[1]
    assert len(second) == 1


def written_state():
    """A variable after a step from a state that a script has written, by way to write it and update, and what is said
    of a state that is written later."""
    import warnings

    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    state = [np.array(value, "float32") for value in (3, 0.1, [0.5, -0.5], [0.25, 0.5])]
    ends, later = [], []
    for with_set_weights in (True, False):
        for update in ("local", "fused"):
            optimizer = ps.DistributedOptimizer(keras.optimizers.Adam(0.1), update=update)
            variable = keras.Variable([1.0, 2.0], trainable=False)
            optimizer.build([variable])
            if with_set_weights:
                optimizer.set_weights(state)
            else:
                for of_optimizer, value in zip(optimizer.variables, state):
                    of_optimizer.assign(value)
            step = lambda: optimizer.apply([keras.ops.ones((2,)) * ps.rank()])
            if keras.backend.backend() == "tensorflow":
                import tensorflow as tf

                step = tf.function(step)
            step()
            ends.append(keras.ops.convert_to_numpy(variable).tolist())
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                optimizer.set_weights(state)
            later.append([str(w.message) for w in caught if "after the first step is lost" in str(w.message)])
    return ends, later


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fused_update_begins_with_a_state_that_a_script_has_written(backend):
    needs("keras", backend)
    for ends, later in run(written_state, env={"KERAS_BACKEND": backend}, timeout=200):
        assert all(end == pytest.approx(ends[0], rel=1e-5) for end in ends)
        assert ends[0][0] == pytest.approx(0.98162, abs=1e-4)  # and 0.9 from zeros
        assert [len(said) for said in later] == [0, 1, 0, 1]


def written_weights():
    """Warnings where weights are written before the first step, and between steps."""
    import warnings

    import keras

    import psring.keras as ps

    ps.init()
    x, y = data(ps.rank())
    model = network(0)
    model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.SGD(0.1), update="fused"), loss="mse")
    model.set_weights([weight * 0.5 for weight in model.get_weights()])
    told = []
    for writes in (False, True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(x[:8], y[:8], batch_size=8, epochs=2, verbose=0)
            if writes:
                model.layers[0].bias.assign(model.layers[0].bias + 1.0)
                model.fit(x[:8], y[:8], batch_size=8, verbose=0)
        told.append([str(warning.message) for warning in caught if "which is lost" in str(warning.message)])
    return told


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_that_a_script_writes_between_fused_steps_are_told_as_lost(backend):
    needs("keras", backend)
    for rank, (before, between) in enumerate(run(written_weights, env={"KERAS_BACKEND": backend}, timeout=300)):
        assert before == [] and len(between) == 1
        assert f"rank {rank}: a script has written to " in between[0] and "bias since the last step" in between[0]


def several_rates():
    """Variables of a MultiOptimizer after a step, and what is said where one rate differs between ranks."""
    import keras

    import psring.keras as ps

    ps.init()
    own = {"first": keras.optimizers.SGD(0.5), "second": keras.optimizers.SGD(0.25)}
    optimizer = ps.DistributedOptimizer(keras.optimizers.MultiOptimizer(lambda variable: own[variable.path]))
    variables = [keras.Variable([1.0], trainable=False, name=name) for name in own]
    grads = [keras.ops.ones((1,)) * 2 * ps.rank() for _ in own]
    optimizer.apply(grads, variables)
    ends = [float(keras.ops.convert_to_numpy(variable)[0]) for variable in variables]
    own["second"].learning_rate = 0.25 * (1 + ps.rank())
    try:
        optimizer.apply(grads, variables)
    except Exception as error:  # as each backend wraps it
        return ends, str(error)
    return ends, ""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_multi_optimizer_exchanges_and_each_of_its_rates_is_compared(backend):
    needs("keras", backend)
    if not hasattr(pytest.importorskip("keras").optimizers, "MultiOptimizer"):
        pytest.skip("this Keras has no MultiOptimizer")
    for rank, (ends, said) in enumerate(run(several_rates, env={"KERAS_BACKEND": backend}, timeout=200)):
        assert ends == [0.5, 0.75] and f"the learning rate is {0.25 * (1 + rank):g} here, and 0.375 in the mean" in said


def loaded_multi_optimizer(update):
    """What is said of a MultiOptimizer of distributed ones, and the weights after a fit from a state of rank 0 alone."""
    import warnings

    import keras

    import psring.keras as ps

    ps.init()
    inner = [ps.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9), update=update) for rate in (0.1, 0.01)]
    model = network(ps.rank())
    optimizers = keras.optimizers.OptimizerMap(inner[0], {".*kernel": inner[1]})
    model.compile(keras.optimizers.MultiOptimizer(optimizers), loss="mse", jit_compile=False)
    if ps.rank() == 0:
        model.optimizer.build(model.trainable_variables)
        for momentum in [*inner[0].momentums, *inner[1].momentums]:
            momentum.assign(keras.ops.ones(momentum.shape))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(*data(ps.rank()), batch_size=8, verbose=0, callbacks=[ps.BroadcastCallback()])
    return [str(w.message) for w in caught if "trains by itself" in str(w.message)], _mean_weights(model)


@pytest.mark.parametrize("update", ["local", "fused"])
def test_a_multi_optimizer_of_distributed_ones_is_a_distributed_one(update):
    needs("keras", "torch")
    if not hasattr(pytest.importorskip("keras").optimizers, "MultiOptimizer"):
        pytest.skip("this Keras has no MultiOptimizer")
    first, second = run(loaded_multi_optimizer, args=(update,), env={"KERAS_BACKEND": "torch"}, timeout=200)
    assert first == second and first[0] == []


def two_optimizers():
    """Of a model's own, as a GAN has them; Keras's compile() gives it a third that does nothing."""
    import warnings

    import keras

    import psring.keras as ps

    ps.init()

    class Two(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = network(ps.rank())

        def compile(self, one, other):
            super().compile(loss="mse")
            self.one, self.other = one, other

        def call(self, x):
            return self.inner(x)

    model = Two()
    model.compile(*[ps.DistributedOptimizer(keras.optimizers.SGD(0.1)) for _ in range(2)])
    x, y = data(0)
    model(x[:1])
    callback = ps.BroadcastCallback()
    callback.set_model(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        callback.on_train_begin()
    return [str(w.message) for w in caught if "trains by itself" in str(w.message)], float(weights(model).sum())


def test_a_model_with_optimizers_of_its_own_is_no_model_without():
    needs("keras", "torch")
    first, second = run(two_optimizers, env={"KERAS_BACKEND": "torch"}, timeout=200)
    assert first == second and first[0] == []


def state_of_parts():
    """Velocities of optimizers of a model's parts, which rank 0 alone has loaded, and what is said of them."""
    import warnings

    import keras

    import psring.keras as ps

    ps.init()
    model = network(ps.rank())
    model.compile(loss="mse")
    parts = [model.layers[-1].trainable_variables, model.layers[0].trainable_variables[::-1]]
    model.parts = [ps.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)) for _ in parts]
    if ps.rank() == 0:
        for number, (optimizer, variables) in enumerate(zip(model.parts, parts)):
            optimizer.build(variables)
            for momentum in optimizer.momentums:
                momentum.assign(keras.ops.ones(momentum.shape) * (number + 1))
    callback = ps.BroadcastCallback()
    callback.set_model(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        callback.on_train_begin()
    shapes = [tuple(variable.shape) for of_part in parts for variable in of_part]
    velocities = [keras.ops.convert_to_numpy(of) for optimizer in model.parts for of in optimizer.momentums]
    told = [str(w.message) for w in caught if "trains by itself" in str(w.message)]
    return told, shapes == [of.shape for of in velocities], [of.mean() for of in velocities]


def test_the_broadcast_callback_hands_on_the_state_of_optimizers_of_parts():
    needs("keras", "torch")
    assert run(state_of_parts, env={"KERAS_BACKEND": "torch"}, timeout=200) == [([], True, [1.0, 1.0, 2.0, 2.0])] * 2


def large_integers():
    import numpy as np

    import psring.jax as ps

    ps.init()
    said = []
    for value in (np.int64(10), np.int64(3_000_000_000)):
        try:
            said.append(int(ps.allreduce(value, op=ps.Sum)))
        except OverflowError as error:
            said.append(str(error))
    return said, float(ps.mean(2.0))


def test_an_integer_that_jax_would_cut_off_is_an_error():
    needs("jax")
    for (small, large), mean in run(large_integers, timeout=200):
        assert small == 20 and "does not fit JAX's int32" in large and mean == 2.0
