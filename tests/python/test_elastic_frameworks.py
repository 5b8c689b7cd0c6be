"""The elastic of psring.jax, keras and tensorflow, where these are installed: what a job that is started again goes on from."""

import os
import re
import subprocess
import sys

import pytest

import ranks
from psring import _elastic
from test_other_frameworks import needs

with_programs = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY") or not os.path.exists(ranks.PROGRAM),
    reason="PSRING_LIBRARY is not set, or the programs are not built: ./psring build",
)
# One rank of the first start is killed before a step.
DIES = """
def dies_at(step):
    if FAILS and (int(os.environ["PSRING_RESTARTS"]), hvd.rank(), step) == (0, 1, 5):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def job(folder, script, *flags, fails=True, backend="jax", timeout=300):
    """What a job of two ranks says; they begin, and end with these bits."""
    path = folder / "script.py"
    path.write_text("import os, signal, zlib\n" + script.replace("DIES", DIES.replace("FAILS", str(fails))))
    kept = {name: value for name, value in os.environ.items() if name != "PSRING_STATE_DIR"}
    ran = subprocess.run(
        [ranks.PROGRAM, "run", "-n=2", "--mode=ring", "--max-restarts=1", *flags, "--", sys.executable, str(path)],
        env={**kept, "PYTHONPATH": ranks.PYTHONPATH, "KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    said = [re.findall(rf"^\[worker {rank}\] (begins at .*|ends with .*)", ran.stdout, re.M) for rank in (0, 1)]
    ends = {line for lines in said for line in lines if line.startswith("ends")}
    assert len(ends) == 1, ran.stdout
    return [[line for line in lines if line.startswith("begins")] for lines in said], ends, ran.stdout


# ---- JAX ---------------------------------------------------------------------

JAX = """
import jax, jax.numpy as jnp, optax
import psring.jax as hvd

hvd.init()
DIES
key = jax.random.PRNGKey(hvd.rank())
params = {"w": jax.random.normal(key, (5, 3)), "b": jnp.zeros(3, jnp.bfloat16), "none": None}
tx = optax.adam(0.1)
fused = hvd.FusedOptimizer({"v": jnp.ones(4)}, "adam", lr=0.1)
state = hvd.elastic.JaxState(params=params, opt_state=tx.init(params), key=jax.random.key(7), step=0, v=None, of_v=None)

def loss(params, x):
    return jnp.sum(jnp.tanh(x @ params["w"] + params["b"]) ** 2)

@jax.jit
def update(params, opt_state, grads):
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state

@hvd.elastic.run
def train(state):
    global fused
    print(f"begins at {state.step}", flush=True)
    if state.v is not None:
        fused.close()
        fused = hvd.FusedOptimizer(state.v, "adam", lr=0.1, state=state.of_v)
    while state.step < 8:
        dies_at(state.step)
        state.key, drawn = jax.random.split(state.key)
        x = jax.random.normal(jax.random.fold_in(drawn, hvd.rank()), (4, 5))
        grads = hvd.allreduce(jax.grad(loss)(state.params, x))
        state.params, state.opt_state = update(state.params, state.opt_state, grads)
        state.v = fused.step({"v": x[0, :4] * state.params["w"][0, 0]})
        state.step += 1
        if state.step % 2 == 0:
            state.of_v = fused.state()
            state.commit()

train(state)
leaves = jax.tree_util.tree_leaves([state.params, state.opt_state, state.v, jax.random.key_data(state.key)])
print("ends with", zlib.crc32(b"".join(x.tobytes() for x in leaves)), flush=True)
"""


@with_programs
def test_a_jax_job_that_loses_a_rank_ends_with_the_bits_of_one_that_does_not(tmp_path):
    needs("jax", "optax")
    begins, ends, said = job(tmp_path, JAX)
    assert begins == [["begins at 0", "begins at 4"]] * 2, said
    begins, undisturbed, said = job(tmp_path, JAX, fails=False)
    assert begins == [["begins at 0"]] * 2 and undisturbed == ends, said


def comes_back(folder):
    import typing

    import jax
    import jax.numpy as jnp
    import numpy as np

    import psring.jax as hvd

    global Pair
    Pair = typing.NamedTuple("Pair", [("a", typing.Any), ("b", typing.Any)])
    Pair.__module__ = __name__
    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    me = hvd.rank()
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    state = hvd.elastic.JaxState(
        params={"split": jax.device_put(jnp.arange(4.0) + me, split), "half": jnp.full(2, me + 0.5, jnp.bfloat16)},
        pair=Pair(None, [jnp.full((2,), me + 0.25), np.int64(me + 1)]), key=jax.random.key(me, impl="rbg"), epoch=me, text="t",
    )  # fmt: skip
    state.sync()

    def told():
        split, pair = state.params["split"], state.pair
        return [
            split.tolist(), len(split.sharding.device_set), str(state.params["half"]), type(pair) is Pair, pair.a,
            str(pair.b[0]), pair.b[0].weak_type, repr(pair.b[1]), jax.random.key_data(state.key).tolist(),
            str(state.key.dtype), state.epoch, state.text,
        ]  # fmt: skip

    first = told()
    state.commit()
    state.params = {"split": state.params["split"] + 1, "half": jnp.zeros(3)}
    state.pair, state.key, state.epoch = None, None, 9
    state.restore()
    placed = len(state.params["split"].sharding.device_set)
    return first, told(), placed


def test_values_of_jax_come_back_as_rank_0_had_them(tmp_path):
    needs("jax")
    env = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    results = ranks.run(comes_back, args=(str(tmp_path),), env=env, timeout=200)
    assert results[0] == results[1]
    first, then, placed = results[0]
    assert first == then and placed == 2
    assert first[:7] == [[0.0, 1.0, 2.0, 3.0], 2, "[0.5 0.5]", True, None, "[0.25 0.25]", True]
    assert first[9:] == ["key<rbg>", 0, "t"]


def has_functions(folder):
    """What a tree such as Flax's TrainState, with a lambda in its structure and one among its leaves, has after a commit."""
    import jax
    import jax.numpy as jnp

    import psring.jax as hvd

    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder

    class Net:
        def __init__(self, params, act, step, tx):
            self.params, self.act, self.step, self.tx = params, act, step, tx

    jax.tree_util.register_pytree_with_keys(
        Net,
        lambda net: ([(jax.tree_util.GetAttrKey(name), getattr(net, name)) for name in ("params", "act", "step")], net.tx),
        lambda tx, leaves: Net(*leaves, tx),
    )

    def net(value, size=2):
        return Net({"w": jnp.full(size, value + hvd.rank())}, lambda x: x + value, 0, lambda x: x * value)

    def begun(state):
        first = (state.net.params["w"].tolist(), int(state.net.step))
        state.net.step = jnp.asarray(state.net.step) + 1  # a number becomes an array in a program
        state.commit()
        return first, state.net.act(1.0), state.net.tx(1.0)

    results = []
    for value in (3.0, 5.0):
        _elastic._made.clear()
        results.append(hvd.elastic.run(begun)(hvd.elastic.JaxState(net=net(value))))
    _elastic._made.clear()
    try:
        hvd.elastic.run(begun)(hvd.elastic.JaxState(net=net(1.0, size=4)))
    except RuntimeError as error:
        results.append(str(error))
    return results


def test_trees_of_jax_keep_the_functions_that_a_script_has_given_them(tmp_path):
    needs("jax")
    for first, then, refused in ranks.run(has_functions, args=(str(tmp_path),), timeout=200):
        assert first == (([3.0, 3.0], 0), 4.0, 3.0)
        assert then == (([3.0, 3.0], 1), 6.0, 5.0)
        assert re.search(r"net is not as it was in the last commit, .*w.* is \[2\] there, and \[4\] here", refused), refused


def refuses_of_jax(folder):
    import jax
    import jax.numpy as jnp

    import psring.jax as hvd

    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    State, said = hvd.elastic.JaxState, []

    def told(call):
        said.append(ranks.error_of_first_state(call))

    def train(state):
        raise AssertionError("begins")

    train = hvd.elastic.run(train)
    given = jnp.ones(3)
    jax.jit(lambda x: x + 1, donate_argnums=0)(given)
    told(lambda: State(params=hvd.FusedOptimizer({"w": jnp.ones(2)}, "sgd")))
    told(lambda: State(params={"w": given}).commit())
    _elastic._made.clear()
    State(params={"w": jnp.ones(3)}, epoch=1).commit()
    told(lambda: train(State(params={"w": jnp.ones(3)}, step=1)))
    told(lambda: train(State(params={"w": jnp.ones((3, 1))}, epoch=1)))
    told(lambda: train(State(params={"v": jnp.ones(3)}, epoch=1)))
    told(lambda: train(3))
    return said


def test_refusals_of_jax_name_what_differs_and_the_remedy(tmp_path):
    needs("jax")
    (said,) = ranks.run(refuses_of_jax, size=1, args=(str(tmp_path),), timeout=200)
    words = [
        "TypeError: JaxState: params is a FusedOptimizer, whose state the library has: give JaxState(params=..., opt_state=None)",
        "RuntimeError: JaxState: the memory of params['w'] has gone to a program (donate_argnums): set state.params to what",
        f"RuntimeError: {tmp_path}/state.jax has been committed by a JaxState of epoch, params, and this one is of params, step. ",
        "RuntimeError: params is not as it was in the last commit, state.jax: ['w'] is float32[3] there, and float32[3, 1] here. ",
        "RuntimeError: params is not as it was in the last commit, state.jax: ['w'] is float32[3] there, and nothing here. ",
        "TypeError: train() takes a JaxState first, not int",
    ]
    assert len(said) == len(words) and all(text.startswith(word) for text, word in zip(said, words)), said


# ---- Keras -------------------------------------------------------------------

KERAS = """
import keras, numpy as np
import psring.keras as hvd

hvd.init()
DIES
keras.utils.set_random_seed(hvd.rank())
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.05), update="UPDATE"), loss="mse", jit_compile=False)
x = np.random.default_rng(hvd.rank()).normal(size=(16, 6)).astype("float32")
y = x.sum(1, keepdims=True)

class Dies(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        dies_at(4 * state.epoch + state.batch)

@hvd.elastic.run
def train(state):
    print(f"begins at epoch {state.epoch}, batch {state.batch}", flush=True)
    while state.epoch < 3:
        left = slice(4 * state.batch, None)
        model.fit(x[left], y[left], batch_size=4, shuffle=False, verbose=0, initial_epoch=state.epoch, epochs=state.epoch + 1,
                  callbacks=[hvd.elastic.CommitStateCallback(state), hvd.elastic.UpdateBatchStateCallback(state),
                             hvd.elastic.UpdateEpochStateCallback(state), Dies()])

state = hvd.elastic.KerasState(model, epoch=0, batch=0)
train(state)
model.optimizer.synchronize_state()
values = [keras.ops.convert_to_numpy(v) for v in [*model.weights, *model.optimizer.variables]]
print("ends with", state.epoch, state.batch, int(model.optimizer.iterations), zlib.crc32(b"".join(v.tobytes() for v in values)), flush=True)
"""


@with_programs
@pytest.mark.parametrize("backend, update", [("jax", "local"), ("torch", "fused"), ("tensorflow", "fused")])
def test_a_fit_that_loses_a_rank_goes_on_at_its_epoch_and_batch(tmp_path, backend, update):
    needs("keras", backend)
    script = KERAS.replace("UPDATE", update)
    begins, ends, said = job(tmp_path, script, backend=backend)
    assert begins == [["begins at epoch 0, batch 0", "begins at epoch 1, batch 1"]] * 2, said
    begins, undisturbed, said = job(tmp_path, script, backend=backend, fails=False)
    assert begins == [["begins at epoch 0, batch 0"]] * 2 and undisturbed == ends, said
    assert "ends with 3 0 12 " in said


def restores_keras(folder):
    import keras
    import numpy as np

    import psring.keras as hvd

    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    found = []
    for update in ("local", "fused"):
        keras.utils.set_random_seed(hvd.rank())
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.1), update=update)
        state = hvd.elastic.KerasState(model, optimizer, epoch=0, names=[update])
        state.sync()

        def step():
            gradients = [keras.ops.ones(v.shape) * (hvd.rank() + int(optimizer.iterations)) for v in model.trainable_variables]
            optimizer.apply(gradients, model.trainable_variables)
            return [np.array(keras.ops.convert_to_numpy(weight)).tolist() for weight in model.weights]

        first = step()
        state.commit()
        second, third = step(), step()
        state.epoch, state.names = 7, []
        state.restore()
        found.append((first, second, third) == (first, step(), step()) and first != second)
        found.append((state.epoch, state.names, state.model is model, int(optimizer.iterations)))
        found.append(third)
    return found


def test_restore_goes_back_also_in_the_middle_of_a_fused_job(tmp_path):
    needs("keras", "jax")
    results = ranks.run(restores_keras, args=(str(tmp_path),), env={"KERAS_BACKEND": "jax"}, timeout=200)
    assert results[0] == results[1]
    assert [results[0][i] for i in (0, 3)] == [True, True]
    assert [results[0][i] for i in (1, 4)] == [(0, ["local"], True, 3), (0, ["fused"], True, 3)]


def refuses_of_keras(folder):
    import keras

    import psring.keras as hvd

    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    State, said = hvd.elastic.KerasState, []

    def told(call):
        said.append(ranks.error_of_first_state(call))

    def model(units):
        made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units, name="last")])
        made.compile(optimizer="adam", loss="mse")
        return made

    def train(state):
        raise AssertionError("begins")

    train = hvd.elastic.run(train)
    State(model(2), epoch=1).commit()
    told(lambda: train(State(model(2), step=1)))
    told(lambda: train(State(model(3), epoch=1)))
    told(lambda: train(3))
    told(lambda: State(keras.Sequential([keras.layers.Dense(2)])))
    told(lambda: hvd.elastic.UpdateBatchStateCallback(State(model(2), epoch=1)))
    return said


def test_refusals_of_keras_name_what_differs_and_the_remedy(tmp_path):
    needs("keras", "jax")
    (said,) = ranks.run(refuses_of_keras, size=1, args=(str(tmp_path),), env={"KERAS_BACKEND": "jax"}, timeout=200)
    of = "epoch, model (with variables), optimizer (with variables)"
    words = [
        f"RuntimeError: {tmp_path}/state.keras has been committed by a KerasState of {of}, and this one is of model (with ",
        "RuntimeError: model is not as it was in the last commit, state.keras: variable 0 is ",
        "TypeError: train() takes a KerasState first, not int",
        "ValueError: KerasState: model has no weights yet: give it an Input, or call its build(input_shape)",
        "ValueError: UpdateBatchStateCallback: the state has no batch: KerasState(model, batch=0)",
    ]
    assert len(said) == len(words) and all(text.startswith(word) for text, word in zip(said, words)), said


# ---- TensorFlow --------------------------------------------------------------

TENSORFLOW = """
import numpy as np, tensorflow as tf
import psring.tensorflow as hvd

hvd.init()
DIES
tf.keras.utils.set_random_seed(hvd.rank())
model = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(5, "tanh"), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.Adam(0.05)
optimizer.build(model.trainable_variables)
scale = tf.Variable(1.0 + hvd.rank())
x = np.random.default_rng(hvd.rank()).normal(size=(16, 6)).astype("float32")
y = x.sum(1, keepdims=True)

@tf.function
def update(x, y):
    variables = [*model.trainable_variables, scale]
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((scale * model(x) - y) ** 2)
    *gradients, of_scale = hvd.DistributedGradientTape(tape).gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables))
    scale.assign_sub(0.01 * of_scale)

@hvd.elastic.run
def train(state):
    print(f"begins at {state.step}", flush=True)
    while state.step < 8:
        dies_at(state.step)
        rows = slice(4 * (state.step % 4), 4 * (state.step % 4) + 4)
        update(x[rows], y[rows])
        state.step += 1
        if state.step % 2 == 0:
            state.commit()

state = hvd.elastic.TensorFlowState([*model.weights, *optimizer.variables], scale=scale, step=0)
train(state)
values = [*model.weights, *optimizer.variables, scale]
print("ends with", zlib.crc32(b"".join(value.numpy().tobytes() for value in values)), flush=True)
"""


@with_programs
def test_a_tensorflow_job_that_loses_a_rank_ends_with_the_bits_of_one_that_does_not(tmp_path):
    needs("tensorflow")
    begins, ends, said = job(tmp_path, TENSORFLOW, backend="tensorflow")
    assert begins == [["begins at 0", "begins at 4"]] * 2, said
    begins, undisturbed, said = job(tmp_path, TENSORFLOW, fails=False, backend="tensorflow")
    assert begins == [["begins at 0"]] * 2 and undisturbed == ends, said


def takes_what_rank_0_has(folder):
    import tensorflow as tf

    import psring.tensorflow as hvd

    hvd.init()
    os.environ["PSRING_STATE_DIR"] = folder
    me, said = hvd.rank(), []
    both = [tf.Variable([1.0 + me]), tf.Variable(tf.constant([2.0 + me], tf.bfloat16))]
    state = hvd.elastic.TensorFlowState(both, lr=tf.Variable(0.5 + me), epoch=me, at=tf.constant([me]))
    state.sync()

    def told():
        values = [*state.variables, state.lr, state.at]
        return [str(value.numpy().tolist()) for value in values], state.epoch, state.variables is both

    first = told()
    state.commit()
    for variable in [*both, state.lr]:
        variable.assign(variable + 1)
    state.epoch, state.at = 7, None
    state.restore()

    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2)])
    of_keras = hvd.elastic.TensorFlowKerasState(model, tf.keras.optimizers.Adam(), batch=3)
    begins = hvd.elastic.run(lambda state: state.batch)(of_keras)

    def refused(call):
        said.append(ranks.error_of_first_state(call))

    train = hvd.elastic.run(lambda state: "begins")
    refused(lambda: train(hvd.elastic.TensorFlowState([tf.Variable([[1.0]]), both[1]], lr=state.lr, epoch=1, at=0)))
    refused(lambda: train(hvd.elastic.TensorFlowState(both, lr=0.5, epoch=1, at=0)))
    refused(lambda: hvd.elastic.TensorFlowState([1.0]))
    return first, told(), begins, said


def test_values_of_tensorflow_come_back_as_rank_0_had_them(tmp_path):
    needs("tensorflow")
    results = ranks.run(takes_what_rank_0_has, args=(str(tmp_path),), timeout=200)
    words = [
        "RuntimeError: variables is not as it was in the last commit, state.tensorflow: variable 0 is Variable:0[1] there, and Variable:0[1, 1] here. ",
        f"RuntimeError: {tmp_path}/state.tensorflow has been committed by a TensorFlowState of at, epoch, lr (with variables), "
        "variables (with variables), and this one is of at, epoch, lr, variables (with variables). ",
        "TypeError: TensorFlowState(variables=[1.0]): it takes a list of variables",
    ]
    for first, then, begins, said in results:
        assert first == then == (["[1.0]", "[2.0]", "0.5", "[0]"], 0, True) and begins == 3
    said = results[0][3]
    assert len(said) == len(words) and all(text.startswith(word) for text, word in zip(said, words)), said
