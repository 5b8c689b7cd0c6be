"""What happens around a distributed optimizer of Keras's: callbacks, schedules, policies, restored weights."""

import os
import signal
import time

import pytest

from ranks import run, start
from test_keras_fused import BACKENDS, data, network, weights
from test_other_frameworks import needs


def restored_weights():
    """The model's weights before and after synchronize_parameters(), and its warnings, by sync."""
    import warnings

    import psring.keras as ps

    import keras

    ps.init()
    results = []
    for sync in ("bsp", "async"):
        model = network(0)
        model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.SGD(0.1), update="fused", sync=sync), loss="mse")
        model.fit(*data(0), batch_size=8, verbose=0)
        best = [weight * 0 + 1 for weight in model.get_weights()]
        model.set_weights(best)  # as EarlyStopping(restore_best_weights=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.optimizer.synchronize_parameters()
        said = [str(warning.message) for warning in caught if "synchronize_parameters" in str(warning.message)]
        results.append((bool((weights(model) == 1).all()), said))
    return results


@pytest.mark.parametrize("backend", BACKENDS)
def test_synchronize_parameters_keeps_weights_that_were_restored(backend):
    needs("keras", backend)
    [[bsp, asynchronous]] = run(restored_weights, size=1, mode="ps", env={"KERAS_BACKEND": backend}, timeout=200)
    assert bsp == (True, [])
    assert asynchronous[0] and "makes the variables rank 0's" in asynchronous[1][0]


def state_as_an_argument(assigned):
    """What the first step of a jitted stateless_apply() warns of, which is given a state of five steps."""
    import warnings

    import jax
    import numpy as np

    import psring.keras as ps

    import keras

    ps.init()
    variable = keras.Variable([1.0])
    optimizer = ps.DistributedOptimizer(keras.optimizers.Adam(0.1), update="fused")
    optimizer.build([variable])
    # Iterations, the rate, the mean of gradients and of their squares.
    state = [np.int32(5), np.float32(0.1), np.float32([0.5]), np.float32([0.25])]
    if assigned:
        for each, value in zip(optimizer.variables, state):
            each.assign(value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            values, state = jax.jit(optimizer.stateless_apply)(state, [np.float32([1.0])], [variable.value])
            jax.block_until_ready(values)
    return [str(warning.message) for warning in caught if "state" in str(warning.message)]


def test_a_state_that_jax_passes_as_an_argument_alone_is_told():
    needs("keras", "jax")
    [[said]] = run(state_as_an_argument, size=1, env={"KERAS_BACKEND": "jax"}, timeout=200, args=(False,))
    assert "of 5 steps" in said and "one of 0, with which" in said
    assert run(state_as_an_argument, size=1, env={"KERAS_BACKEND": "jax"}, timeout=200, args=(True,)) == [[]]


def warm_up():
    """A variable after a warm-up from a tiny rate, by compression."""
    import keras

    import psring.keras as ps

    ps.init()
    values = []
    for compress in ("none", "fp16"):
        rate = keras.optimizers.schedules.PiecewiseConstantDecay([0], [1e-7, 0.1])
        optimizer = ps.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9), update="fused", compress=compress)
        variable = keras.Variable([1.0])
        for _ in range(8):
            optimizer.apply([keras.ops.ones((1,))], [variable])
        values.append(float(keras.ops.convert_to_numpy(variable)[0]))
    return values


def test_gradients_of_a_schedule_that_starts_at_a_tiny_rate_fit_fp16():
    needs("keras", "torch")
    for plain, rounded in run(warm_up, env={"KERAS_BACKEND": "torch"}, timeout=200):
        assert rounded == pytest.approx(plain, rel=1e-3) and plain < 0


def rate_of_one_rank():
    import keras

    import psring.keras as ps

    ps.init(step_timeout_s=20)
    optimizer = ps.DistributedOptimizer(keras.optimizers.SGD(0.1), update="fused")
    variable = keras.Variable([1.0, 2.0])
    for rate in (0.1, 0.05, 0.01 * (1 + ps.rank())):
        optimizer.learning_rate = rate
        try:
            optimizer.apply([keras.ops.ones((2,))], [variable])
        except ps.PsringError as error:
            return str(error), float(keras.ops.convert_to_numpy(variable)[0])
    return "", 0.0


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_learning_rates_that_differ_between_ranks_are_an_error(mode):
    needs("keras", "torch")
    for said, value in run(rate_of_one_rank, mode=mode, env={"KERAS_BACKEND": "torch"}, timeout=200):
        assert "ranks 0 and 1 differ: the learning rate 0.01 on rank 0, the learning rate 0.02 on rank 1" in said
        assert value == pytest.approx(0.85)


def rate_of_rank_1_alone():
    import keras

    import psring.keras as ps

    ps.init(step_timeout_s=8)
    optimizer = ps.DistributedOptimizer(keras.optimizers.SGD(0.1), update="fused")
    variable = keras.Variable([1.0, 2.0])
    for step in range(3):
        if step == 1 and ps.rank() == 1:
            optimizer.learning_rate = 0.05
        try:
            optimizer.apply([keras.ops.ones((2,))], [variable])
        except ps.PsringError as error:
            return str(error)
    return ""


def test_a_learning_rate_that_one_rank_changed_is_named():
    needs("keras", "torch")
    first, other = run(rate_of_rank_1_alone, env={"KERAS_BACKEND": "torch"}, timeout=200)
    assert "worker 1" in first
    assert "The learning rate went from 0.1 to 0.05 on rank 1" in other, other


def restored_on_one_rank():
    import keras

    import psring.keras as ps

    ps.init()
    model = network(0)
    model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.SGD(0.1), update="fused"), loss="mse")
    model.fit(*data(0), batch_size=8, verbose=0)
    if ps.rank() == 1:
        model.set_weights([weight * 0 + 7 for weight in model.get_weights()])
    mine = weights(model).tolist()
    model.optimizer.synchronize_parameters()
    return mine, weights(model).tolist()


def test_after_restored_weights_on_one_rank_all_have_rank_0s():
    needs("keras", "torch")
    env = {"KERAS_BACKEND": "torch", "PSRING_SYNC": "async"}
    (before, first), (_, other) = run(restored_on_one_rank, mode="ps", env=env, timeout=200)
    assert first == other == before


def state_before_parameters():
    """A variable after four updates of 1 by a momentum, three of them rank 1's, and warnings, where the state is fetched first."""
    import warnings

    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    variable = keras.Variable(np.zeros(2, "float32"))
    optimizer = ps.DistributedOptimizer(keras.optimizers.SGD(1.0, momentum=0.5), update="fused")
    optimizer.build([variable])
    for _ in range(3 if ps.rank() == 1 else 1):
        optimizer.apply([keras.ops.ones(2)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.synchronize_state()
        optimizer.synchronize_state()
        optimizer.synchronize_parameters()
    said = [str(warning.message) for warning in caught if "synchronize_parameters" in str(warning.message)]
    return keras.ops.convert_to_numpy(variable).tolist(), said


def test_parameters_after_the_state_have_every_gradient():
    needs("keras", "torch")
    env = {"KERAS_BACKEND": "torch", "PSRING_SYNC": "async"}
    assert run(state_before_parameters, mode="ps", env=env, timeout=200) == [([-6.125] * 2, [])] * 2


def loaded_on_rank_0():
    """Weights and the optimizer's step after two epochs that only rank 0 continues."""
    import keras

    import psring.keras as ps

    ps.init()
    results = []
    for update in ("local", "fused"):
        model = network(0)
        optimizer = keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5))
        model.compile(optimizer=optimizer, loss="mse", jit_compile=False)
        if ps.rank() == 0:
            model.fit(*data(7), batch_size=8, verbose=0)
            path = f"{os.environ['FOLDER']}/{update}.keras"
            model.save(path)
            model = keras.models.load_model(path)
        model.optimizer = ps.DistributedOptimizer(model.optimizer, update=update)
        model.fit(*data(ps.rank()), batch_size=8, verbose=0, shuffle=False, callbacks=[ps.BroadcastCallback()])
        results.append((weights(model).tolist(), int(model.optimizer.iterations)))
    return results


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_broadcast_callback_hands_on_the_optimizers_state(backend, tmp_path):
    needs("keras", backend)
    first, other = run(loaded_on_rank_0, env={"KERAS_BACKEND": backend, "FOLDER": str(tmp_path)}, timeout=200)
    assert first == other
    assert [steps for _, steps in first] == [12, 12]


def compiled_wrongly():
    import keras

    import psring.keras as ps

    ps.init()
    said = []
    for scaled, jit in ((True, False), (False, True)):
        model = network(0)
        optimizer = ps.DistributedOptimizer(keras.optimizers.SGD(0.1))
        if scaled:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        model.compile(optimizer=optimizer, loss="mse", jit_compile=jit)
        try:
            model.fit(*data(0), verbose=0, callbacks=[ps.BroadcastCallback()])
            said.append("")
        except ValueError as error:
            said.append(str(error))
    return said


def test_models_that_psring_cannot_train_are_refused_when_training_begins():
    needs("keras", "tensorflow")
    for scaled, jit in run(compiled_wrongly, env={"KERAS_BACKEND": "tensorflow"}, timeout=200):
        assert "DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))" in scaled
        assert "jit_compile=False" in jit


def bfloat16():
    import keras

    import psring.keras as ps

    ps.init()
    optimizer = ps.DistributedOptimizer(keras.optimizers.SGD(1.0), update="local")
    variable = keras.Variable([4.0], dtype="bfloat16")
    optimizer.apply([keras.ops.cast(keras.ops.convert_to_tensor([1.0 + 2 * ps.rank()]), "bfloat16")], [variable])
    again = type(optimizer).from_config(optimizer.get_config())
    other = keras.Variable([4.0])
    again.apply([keras.ops.ones((1,))], [other])
    return [float(keras.ops.cast(v, "float32")[0]) for v in (variable, other)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16_and_an_optimizer_made_anew_from_its_config(backend):
    needs("keras", backend)
    assert run(bfloat16, env={"KERAS_BACKEND": backend}, timeout=200) == [[2.0, 3.0]] * 2


INTERRUPTED = """
import sys, time
import numpy as np, keras
import psring.keras as ps
ps.init()
class Late(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2 and ps.rank() == 1:
            time.sleep(12)
        print("batch", batch, flush=True)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.SGD(0.1), update=sys.argv[1]), loss="mse")
model.fit(np.ones((64, 4), "float32"), np.ones((64, 2), "float32"), batch_size=8, verbose=0, callbacks=[Late()])
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("update", ["local", "fused"])
def test_ctrl_c_ends_a_step_that_waits(tmp_path, backend, update):
    needs("keras", backend)
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    processes = start(str(script), 2, args=[update], env={"KERAS_BACKEND": backend})
    try:
        first = processes[0]
        while first.stdout.readline() not in ("batch 2\n", ""):
            pass
        time.sleep(0.5)
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=60)
        assert "KeyboardInterrupt" in err and first.returncode != 0
        assert processes[1].poll() is None  # it has not come to the step that the first waited for
        processes[1].communicate(timeout=60)
        assert processes[1].returncode == 1
    finally:
        for process in processes:
            process.kill()
