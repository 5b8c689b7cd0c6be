"""psring.tensorflow, where TensorFlow is installed."""

import os

import pytest

from ranks import run
from test_other_frameworks import needs


def collectives():
    import time

    import numpy as np
    import tensorflow as tf

    import psring.tensorflow as ps

    ps.init()
    me, found = ps.rank(), {}
    x = tf.Variable([[1.0 + me, 2.0], [3.0, 4.0 * me]])

    def every(x):
        out = {
            "mean": ps.allreduce(x),
            "sum": ps.allreduce(x, op=ps.Sum, prescale_factor=0.5, postscale_factor=4.0),
            "max": ps.allreduce(tf.cast(x, tf.int32), op=ps.Max),
            "half": ps.allreduce(x, compression=ps.Compression.fp16),
            "bf16": ps.allreduce(tf.cast(x, tf.bfloat16)),
            "gathered": ps.allgather(x[: 1 + me]),
            "scalars": ps.allgather(float(me)),
            "scattered": ps.reducescatter(x, op=ps.Sum),
            "swapped": ps.alltoall(x),
            "root": ps.broadcast(x, 1),
            "text": ps.broadcast(tf.constant([me == 1, True]), 1),
        }
        out["cut"], out["from"] = ps.alltoall(x, splits=[2, 0] if me == 0 else [1, 1])
        many = ps.grouped_allreduce([x[0, 0] * i for i in range(20)], op=ps.Sum)
        out["many"], out["two"] = tf.stack(many), ps.grouped_allgather([x[0], tf.cast(x[1], tf.int64)])[1]
        return out

    for name, call in (("eager", every), ("function", tf.function(every))):
        found[name] = {key: (value.dtype.name, value.numpy().astype(float).tolist()) for key, value in call(x).items()}

    def gradients(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            results = {
                "mean": ps.allreduce(x) * (1.0 + me),
                "sum": ps.allreduce(x, op=ps.Sum),
                "gathered": ps.allgather(x[: 1 + me]) * (1.0 + me),
                "swapped": ps.alltoall(x) * (1.0 + me),
                "root": ps.broadcast(x, 1) * (1.0 + me),
                "scattered": ps.reducescatter(x, op=ps.Sum) * (1.0 + me),
            }
        return {name: tape.gradient(result, x) for name, result in results.items()}

    at = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    for name, call in (("eager gradients", gradients), ("function gradients", tf.function(gradients))):
        found[name] = {key: value.numpy().tolist() for key, value in call(at).items()}

    with tf.GradientTape() as outer:
        outer.watch(at)
        with tf.GradientTape() as inner:
            inner.watch(at)
            reduced = ps.allreduce(at * at)
        [penalty] = inner.gradient(reduced, [at])
        penalty = tf.reduce_sum(penalty * penalty)
    found["second"] = outer.gradient(penalty, at).numpy().tolist()

    w = tf.Variable(2.0)

    def late(value, rank):  # its operation is none of those that TensorFlow makes in order
        def wait(array):
            time.sleep(0.3 if me == rank else 0)
            return np.asarray(array)

        value = tf.numpy_function(wait, [value], tf.float32, stateful=False)
        value.set_shape([])
        return value

    @tf.function
    def in_a_branch(taken):
        first = tf.cond(taken, lambda: ps.allreduce(late(w * 10.0, 0), op=ps.Sum), lambda: w)
        return first, ps.allreduce(late(1.0, 1), op=ps.Sum)

    found["branch"] = [[float(value) for value in in_a_branch(tf.constant(True))] for _ in range(4)]

    def of_loop(own):
        @tf.function
        def gradients():
            y = x = tf.constant([2.0, 3.0])
            with tf.GradientTape() as tape:
                tape.watch(x)
                for _ in tf.range(2):
                    y = own(y * y)
                z = tf.cond(y[0] > 0, lambda: own(y * w), lambda: y)
            return tape.gradient(z, x)

        return [gradients().numpy().tolist() for _ in range(4)]

    found["loop"] = of_loop(ps.allreduce), of_loop(tf.identity)

    def of_many(call):
        @tf.function
        def results():
            return call(w), ps.grouped_allgather([tf.constant([1, 2]), w * w])[1], ps.allreduce(w, op=ps.Max)

        with tf.GradientTape(persistent=True) as tape:
            in_function = results()[0]
            integer, eager = ps.grouped_allgather([tf.constant([1, 2]), w * w])
        return [float(tape.gradient(each, w)) for each in (in_function, eager)]

    found["of some results"] = of_many(ps.allreduce)
    slices = tf.IndexedSlices(tf.constant([[1.0 + me]]), tf.constant([me]))
    reduced, dense = ps.grouped_allreduce([slices, w])
    found["slices"] = reduced.values.numpy().tolist(), reduced.indices.numpy().tolist(), float(dense)
    return found


def test_collectives_and_their_gradients_at_once_and_in_a_function():
    needs("tensorflow")
    found = run(collectives, timeout=200)
    for me, of in enumerate(found):
        assert of["function"] == of["eager"] and of["function gradients"] == of["eager gradients"]
        x0, x1 = [[1.0, 2.0], [3.0, 0.0]], [[2.0, 2.0], [3.0, 4.0]]
        assert of["eager"] == {
            "mean": ("float32", [[1.5, 2.0], [3.0, 2.0]]),
            "sum": ("float32", [[6.0, 8.0], [12.0, 8.0]]),
            "max": ("int32", [[2.0, 2.0], [3.0, 4.0]]),
            "half": ("float32", [[1.5, 2.0], [3.0, 2.0]]),
            "bf16": ("bfloat16", [[1.5, 2.0], [3.0, 2.0]]),
            "gathered": ("float32", [x0[0], *x1]),
            "scalars": ("float32", [0.0, 1.0]),
            "scattered": ("float32", [[3.0, 4.0]] if me == 0 else [[6.0, 4.0]]),
            "swapped": ("float32", [x0[me], x1[me]]),
            "root": ("float32", x1),
            "text": ("bool", [1.0, 1.0]),
            "cut": ("float32", [*x0, x1[0]] if me == 0 else [x1[1]]),
            "from": ("int32", [2.0, 1.0] if me == 0 else [0.0, 1.0]),
            "many": ("float32", [3.0 * i for i in range(20)]),
            "two": ("int64", [3.0, 0.0, 3.0, 4.0]),
        }
        assert of["eager gradients"] == {
            "mean": [[1.5, 1.5], [1.5, 1.5]],
            "sum": [[2.0, 2.0], [2.0, 2.0]],
            "gathered": [[1.5, 1.5], [1.5 * me, 1.5 * me]],
            "swapped": [[1.0, 1.0], [2.0, 2.0]],
            "root": [[1.5 * me, 1.5 * me]] * 2,
            "scattered": [[2.0, 2.0], [4.0, 4.0]],  # times the number of ranks, for Sum (as Horovod's)
        }
        # The gradient of sum((2 * x)^2).
        assert of["second"] == [[8.0, 16.0], [24.0, 32.0]]
        assert of["branch"] == [[40.0, 2.0]] * 4
        assert of["loop"][0] == of["loop"][1]
        assert of["of some results"] == [1.0, 4.0]
        assert of["slices"] == ([[0.5], [1.0]], [0, 1], 2.0)


def tapes():
    import gc
    import weakref

    import numpy as np
    import tensorflow as tf

    import psring.tensorflow as ps

    ps.init()
    me = ps.rank()
    tf.random.set_seed(me)
    table, w, unused = tf.Variable(tf.random.normal([6, 3])), tf.Variable(tf.random.normal([3, 2])), tf.Variable(1.0)
    small = [tf.Variable(tf.random.normal([])) for _ in range(20)]
    variables = [table, w, unused, *small]
    ps.broadcast_variables(variables, root_rank=1)
    rows = tf.constant([0, 1, 1] if me == 0 else [1, 5])

    def loss():
        return tf.reduce_sum((tf.gather(table, rows) @ w) ** 2) * (1.0 + tf.add_n([s * s for s in small]))

    def dense(gradients):
        return [None if each is None else tf.convert_to_tensor(each).numpy() for each in gradients]

    with tf.GradientTape() as tape:
        here = loss()
    both = ps.allgather_object(dense(tape.gradient(here, variables)))
    mean = [None if a is None else (a + b) / 2 for a, b in zip(*both)]

    def distributed(**more):
        def gradients():
            with tf.GradientTape() as tape:
                value = loss()
            return ps.DistributedGradientTape(tape, **more).gradient(value, variables)

        return gradients

    def near(gradients, expected, rtol=1e-5):
        return all(
            (a is None and b is None) or np.allclose(a, b, rtol, atol=rtol) for a, b in zip(dense(gradients), expected)
        )

    def jacobian():
        x = tf.constant([1.0, 2.0 + me])
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = x * x
        return ps.DistributedGradientTape(tape).jacobian(value, x)

    def local(scale):
        with tf.GradientTape() as tape:
            value = loss()
        tape = ps.DistributedGradientTape(tape, scale_local_gradients=scale)
        tape.register_local_source(table)
        tape.register_local_source(unused)
        return tape.gradient(value, variables)

    def of_layers():
        layers = [tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)]
        with tf.GradientTape(persistent=True) as tape:
            value = tf.reduce_sum(layers[1](layers[0](tf.constant([[1.0, 2.0 + me]]))))
        weights = [weight for layer in layers for weight in layer.trainable_weights]
        mine = dense(tape.gradient(value, weights))
        means = [(a + b) / 2 for a, b in zip(*ps.allgather_object(mine))]
        partial = ps.PartialDistributedGradientTape(tape, local_layers=layers[0]).gradient(value, weights)
        return near(partial, [each / 2 for each in mine[:2]] + means[2:])

    def went():
        variable = tf.Variable(1.0)

        @tf.function
        def gradient():
            with tf.GradientTape() as tape:
                value = variable * variable
            return ps.DistributedGradientTape(tape).gradient(value, variable)

        gradient()
        alive = weakref.ref(variable)
        del variable, gradient
        gc.collect()
        return alive() is None

    found = {}
    eager = distributed()()
    found["slices stay slices"] = isinstance(eager[0], tf.IndexedSlices) and eager[2] is None
    found["eager"] = near(eager, mean)
    found["function"] = near(tf.function(distributed())(), mean)
    found["dense"] = near(tf.function(distributed(sparse_as_dense=True))(), mean)
    found["sum"] = near(distributed(op=ps.Sum)(), [None if a is None else 2 * a for a in mean])
    found["divided"] = near(distributed(gradient_predivide_factor=2.0)(), mean)
    found["half"] = near(distributed(compression=ps.Compression.bf16)(), mean, 3e-2)
    with ps.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        value = loss()
    found["a dict, twice"] = all(near([tape.gradient(value, {"w": w})["w"]], [mean[1]]) for _ in range(2))
    unknown = tf.Variable([1.0, 2.0 + me], shape=tf.TensorShape(None))
    with tf.GradientTape() as tape:
        value = unknown * unknown
    found["a shape that is not known"] = near([ps.DistributedGradientTape(tape).gradient(value, unknown)], [[2.0, 5.0]])
    found["jacobian"] = np.allclose(jacobian(), [[2.0, 0.0], [0.0, 5.0]])
    found["variables go"] = went()
    mine = both[me][0]
    found["local, scaled"] = near(local(True), [mine / 2, *mean[1:]])
    found["local, in a function"] = near(tf.function(local)(True), [mine / 2, *mean[1:]])
    found["local, as it is"] = near(local(False), [mine, *mean[1:]])
    found["local layers"] = of_layers()
    found["alike"] = len({str([None if g is None else g.tobytes() for g in of]) for of in ps.allgather_object(dense(eager))}) == 1
    return found


def test_a_tapes_gradients_are_everybodys():
    needs("tensorflow")
    for found in run(tapes, timeout=200):
        assert all(found.values()), found


def train():
    import numpy as np
    import tensorflow as tf

    import psring.tensorflow as hvd

    hvd.init()
    tf.keras.utils.set_random_seed(hvd.rank())
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.Adam(0.05)
    x = np.random.RandomState(hvd.rank()).randn(64, 4).astype("float32")
    y = x[:, :1] - x[:, 1:2]

    @tf.function
    def step(images, labels, first_batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(images, training=True) - labels) ** 2)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        if first_batch:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables, root_rank=0)
        return loss

    losses = []
    for epoch in range(4):
        for begin in range(0, 64, 16):
            losses.append(float(step(x[begin : begin + 16], y[begin : begin + 16], epoch == begin == 0)))
    weights = hvd.allgather_object([variable.numpy() for variable in [*model.variables, *optimizer.variables]])
    return losses, all((a == b).all() for a, b in zip(*weights))


def test_a_loop_of_horovods_trains_alike_on_all_ranks():
    needs("tensorflow")
    for losses, alike in run(train, timeout=200):
        assert alike and losses[-1] < 0.5 * losses[0], losses


def tape_in_async():
    """What two steps of a loop with a tape warn of."""
    import warnings

    import tensorflow as tf

    import psring.tensorflow as ps

    ps.init()
    variable = tf.Variable(1.0)
    with warnings.catch_warnings(record=True) as caught:
        for _ in range(2):
            with tf.GradientTape() as tape:
                value = variable * variable
            ps.DistributedGradientTape(tape).gradient(value, variable)
    return [(os.path.basename(warning.filename), str(warning.message)) for warning in caught if "sync=" in str(warning.message)]


def test_a_tape_says_that_it_waits_for_all_ranks_also_in_async():
    needs("tensorflow")
    [[(file, said)]] = run(tape_in_async, size=1, mode="ps", env={"PSRING_SYNC": "async"}, timeout=200)
    assert file == os.path.basename(__file__) and 'sync="async" does not apply' in said and "psring.keras" in said


def refused():
    import tensorflow as tf

    import psring.tensorflow as ps

    ps.init()
    me, x = ps.rank(), tf.ones(2)

    def of(call):
        try:
            call()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"

    def of_max(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            most = ps.allreduce(x, op=ps.Max)
        return tape.gradient(most, x)

    @tf.function
    def of_loop_twice(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = x
                for _ in tf.range(2):
                    y = ps.allreduce(y * y)
            first = inner.gradient(y, x)
        return outer.gradient(first, x)

    def in_a_session():
        with tf.Graph().as_default():
            ps.allreduce(tf.ones(2))

    twice = ps.DistributedGradientTape(tf.GradientTape())
    said = [
        of(lambda: ps.allreduce(tf.constant([1, 2]))),
        of(lambda: ps.allreduce(tf.constant([1j]), op=ps.Sum)),
        of(lambda: tf.function(lambda: ps.allreduce(tf.constant(["a"])))()),
        of(lambda: ps.allreduce(x, average=True, op=ps.Sum)),
        of(lambda: ps.alltoall(x, splits=[1.0, 1.0])),
        of(lambda: ps.alltoall(x, splits=[1, 2])),
        of(lambda: ps.DistributedGradientTape(twice)),
        of(lambda: ps.DistributedGradientTape(x)),
        of(lambda: ps.DistributedGradientTape(tf.GradientTape(), op=ps.Max)),
        of(lambda: tf.function(lambda: ps.allreduce(x), jit_compile=True)()),
        of(lambda: ps.DistributedOptimizer),
        of(lambda: ps.broadcast_variables([tf.Variable([1.0] * (1 + me))])),
        of(lambda: tf.function(lambda: ps.broadcast_variables([]) if me else ps.broadcast_variables(w))()),
        of(lambda: ps.broadcast(x, 7)),
        of(lambda: of_max(tf.constant(2.0))),
        of(lambda: tf.function(of_max)(tf.constant(2.0))),
        of(lambda: of_loop_twice(tf.constant(2.0))),
        of(lambda: ps.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[w])),
        of(lambda: ps.SyncBatchNormalization),
        of(lambda: ps.broadcast_variables([], 1, ps.ProcessSet([0]))),
        of(in_a_session),
        of(lambda: ps.local_rank_op()),
        of(lambda: tf.function(ps.mean)(x)),
        of(lambda: tf.function(ps.barrier)()),
        of(lambda: tf.function(lambda: ps.broadcast_object(1) + x)()),
    ]
    return said


w = []


def test_says_what_is_wrong():
    needs("tensorflow")
    expected = [
        "op=Average of int32 has no exact result",
        "complex128 is not reduced",
        "psring.tensorflow.allreduce of string",
        "average= and op= are two names",
        "splits of float32: they are whole numbers",
        "splits=[1, 2] do not cut 2 rows for 2 ranks",
        "a DistributedGradientTape already",
        "pass a tf.GradientTape",
        "it is Average or Sum",
        "use tf.function without jit_compile, and for model.fit()",
        "use DistributedGradientTape, or psring.keras.DistributedOptimizer",
        "ranks 0 and 1 differ: variable 0, float32(1,) on rank 0, variable 0, float32(2,) on rank 1",
        "nothing",
        "root_rank=7 is not among the ranks",
        "allreduce with op=Max has no gradient",
        "allreduce with op=Max has no gradient",
        "a second gradient of a call within a branch or a loop",
        "pass layers of Keras",
        "psring.tensorflow has no SyncBatchNormalization: use psring.keras.SyncBatchNormalization",
        "root_rank=1 is not among the ranks [0]",
        "psring.tensorflow is called within a tf.Graph, which a session",
        "psring.tensorflow has no local_rank_op: local_rank() is",
        "call them outside of tf.function and jit, or use allreduce()",
        "barrier() would run when tf.function traces",
        "broadcast_object() would run when tf.function traces",
    ]
    for said in run(refused, timeout=200):
        assert len(said) == len(expected)
        for text, part in zip(said, expected):
            assert part in text, (text, part)
