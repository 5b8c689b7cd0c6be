"""psring.jax and psring.keras, where these are installed."""

import importlib.util
import json
import os
import tempfile
import warnings
import zlib

import pytest

from ranks import HERE, run, run_script


EXAMPLES = os.path.join(HERE, "..", "..", "examples", "python")


def needs(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: ./psring test --frameworks installs it")
    if not os.environ.get("PSRING_LIBRARY") and importlib.util.find_spec("torch") is None:
        pytest.skip("PSRING_LIBRARY is not set, and the stand-in needs torch")


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
    results.append(w.tolist() == [-1.5, -1.5])

    # A constant to the function: all ranks reduce it whenever it runs, not as one of them traces it.
    constant = jnp.full((2,), float(me))
    program = str(jax.make_jaxpr(lambda x: x + ps.allreduce(constant))(w))
    results.append("io_callback" in program)
    add = jax.jit(lambda x: x + ps.allreduce(constant))
    return results + [add(add(w)).tolist() == [-0.5, -0.5]]


def test_jax_eager_and_jit():
    needs("jax")
    for out in run(under_jax, timeout=200):
        assert all(out), out


def jax_with_uneven_batches():
    """Each batch takes a while, so that JAX has returned from the last ones before their calls."""
    import jax
    import jax.numpy as jnp

    import psring.jax as ps

    ps.init()
    prepare = jax.jit(lambda x: x + 0 * jax.lax.fori_loop(0, 20, lambda _, m: jnp.tanh(m @ m), jnp.ones((500, 500)) * x)[0, 0])
    step = jax.jit(lambda x: ps.allreduce(x, op=ps.Sum))
    prepare(jnp.float32(0)).block_until_ready()  # compiled
    sums = [step(prepare(jnp.float32(ps.rank() + 1))) for _ in range(2 + 2 * ps.rank())]
    return ps.join(), [float(value) for value in sums]


def test_jax_joins_after_the_calls_of_its_last_batches():
    needs("jax")
    assert run(jax_with_uneven_batches, timeout=200) == [(1, [3.0, 3.0]), (1, [3.0, 3.0, 2.0, 2.0])]


def traced_again_on_one_rank():
    """Means of batches of which the last one is shorter on rank 1, which then traces its step anew."""
    import jax
    import jax.numpy as jnp

    import psring
    import psring.jax as ps

    ps.init()

    @jax.jit
    def step(x):
        return ps.allreduce(jnp.sum(x)) + ps.broadcast(jnp.float32(1.0))

    sizes = [6, 6, 5 if ps.rank() else 6, 6]
    means = [float(step(jnp.full((size,), 1.0))) for size in sizes]
    eager = [float(ps.allreduce(jnp.float32(ps.rank()))), float(psring.mean(jnp.arange(2.0) + ps.rank())[1])]
    return means, eager


def test_jax_calls_without_names_are_named_when_they_run():
    needs("jax")
    assert run(traced_again_on_one_rank, timeout=200) == [([7.0, 7.0, 6.5, 7.0], [0.5, 1.5])] * 2


def gradients_of_collectives():
    """Of a function of this rank's argument that has another rank's in it, by collective and way to run it."""
    import jax
    import jax.numpy as jnp

    import psring.jax as ps

    ps.init()
    x = jnp.float32(ps.rank() + 1.0)  # 1 and 2
    collectives = {
        "sum": lambda x: ps.allreduce(x, op=ps.Sum),
        "mean": ps.allreduce,
        "root": lambda x: ps.broadcast(x, 1),
        "tree": lambda x: ps.allreduce({"x": x, "count": jnp.int32(1), "none": None}, op=ps.Sum)["x"],
        "scan": lambda x: jax.lax.scan(lambda sum, _: (sum + ps.allreduce(x), None), 0.0, jnp.arange(2))[0],
        "metric": lambda x: x + 0 * ps.allreduce(jax.lax.stop_gradient(x), op=ps.Max),
        "second": jax.grad(lambda x: ps.allreduce(x**3, op=ps.Sum)),
    }
    found = {}
    for name, collective in collectives.items():
        of = lambda x: collective(x) * (ps.rank() + 1)
        found[name] = [float(way(jax.grad(of))(x)) for way in (lambda run: run, jax.jit)]
    _, highest = jax.value_and_grad(lambda x: (x, ps.allreduce(x, op=ps.Max)), has_aux=True)(x)[0]
    try:
        said = str(jax.grad(lambda x: ps.allreduce(x, op=ps.Max))(x))
    except NotImplementedError as error:
        said = str(error)
    return found, float(highest), said


def test_jax_differentiates_collectives():
    needs("jax")
    for rank, (found, highest, said) in enumerate(run(gradients_of_collectives, timeout=200)):
        assert found == {
            "sum": [3.0] * 2, "mean": [1.5] * 2, "root": [1.5 * rank] * 2, "tree": [3.0] * 2, "scan": [3.0] * 2,
            "metric": [1.0 + rank] * 2,
            # 3x^2 times the sum of ones, of which 6x is the derivative.
            "second": [2 * 6.0 * (rank + 1) * (rank + 1)] * 2,
        }  # fmt: skip
        assert highest == 2.0 and f"rank {rank}: psring.jax.allreduce with op=Max has no gradient" in said


def trees_that_cannot_be_reduced():
    import jax
    import jax.numpy as jnp

    import psring.jax as ps

    ps.init()
    said = []
    for leaf in (jnp.zeros(2, jnp.uint32), jax.random.key(0), len, "name", jnp.zeros(2, jnp.int32)):
        for call in (ps.allreduce, ps.broadcast):
            for compiled in (lambda run: run, jax.jit):
                try:
                    compiled(lambda w: call({"w": w, "other": [leaf]})["w"])(jnp.zeros(2))
                    said.append("")
                except TypeError as error:
                    said.append(str(error))
    with pytest.raises(ValueError, match="root_rank=5 is not among the ranks"):
        jax.jit(lambda w: ps.broadcast(w, root_rank=5))(jnp.zeros(2))
    return said


def test_jax_names_the_leaf_that_cannot_be_reduced():
    needs("jax")
    for rank, said in enumerate(run(trees_that_cannot_be_reduced, timeout=200)):
        refused = [True, False] * 2 + [True] * 4 + [True, False]
        assert [bool(text) for text in said[::2]] == [bool(text) for text in said[1::2]] == refused, said
        for text, call in zip(said, 5 * ("allreduce", "allreduce", "broadcast", "broadcast")):
            assert not text or text.startswith(f"rank {rank}: psring.jax.{call}: ['other'][0]: "), text


def keys_and_what_has_no_values():
    import jax
    import jax.numpy as jnp

    import psring.jax as ps

    ps.init()
    keys = {"k": jax.random.key(ps.rank()), "many": jax.random.split(jax.random.key(ps.rank(), impl="rbg"), 3)}
    bits = lambda tree: [jax.random.bits(key).tolist() for key in (tree["k"], tree["many"][2])]
    found = [bits(way(ps.broadcast)(keys)) for way in (lambda run: run, jax.jit)]
    floats = jax.grad(lambda p: p["w"].sum(), allow_int=True)({"w": jnp.ones(2), "i": jnp.arange(3)})
    said = []
    for call in (
        lambda: jax.jit(ps.mean)(jnp.ones(())),
        lambda: ps.allreduce(floats),
        lambda: ps.allreduce(jnp.ones(2, jnp.complex64)),
    ):
        try:
            said.append(str(call()))
        except TypeError as error:
            said.append(str(error))
    return found, bits(keys), said


def test_jax_broadcasts_keys_and_says_what_has_no_values():
    needs("jax")
    (found, first, said), (other, second, _) = run(keys_and_what_has_no_values, timeout=200)
    assert found == other == [first] * 2 and first != second
    assert "has none yet: call them outside of tf.function and jit, or use allreduce()" in said[0], said
    assert "['i']: a gradient of integers has no values: leave it out of the tree" in said[1], said
    assert "reduce its real and its imaginary part" in said[2], said


def on_several_devices():
    """What is said in programs for parts of arrays, and the sum of a sharded array in jit."""
    import jax
    import jax.numpy as jnp

    import psring.jax as ps

    ps.init()
    mesh = jax.make_mesh((2,), ("d",))
    rows = jax.sharding.PartitionSpec("d")
    sharded = jax.device_put(jnp.arange(4.0), jax.sharding.NamedSharding(mesh, rows))
    shard_map = getattr(jax, "shard_map", None) or __import__("jax.experimental.shard_map").experimental.shard_map.shard_map
    said = []
    for program in (
        jax.jit(shard_map(ps.allreduce, mesh=mesh, in_specs=rows, out_specs=rows)),
        lambda x: jax.pmap(ps.allreduce)(jnp.ones((2, 2))),
    ):
        try:
            said.append(str(program(sharded)))
        except Exception as error:  # as each JAX has it
            said.append(str(error))
    return said, jax.jit(lambda x: ps.allreduce(x, op=ps.Sum))(sharded).tolist()


def test_jax_programs_for_parts_of_several_devices_are_refused():
    needs("jax")
    env = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    for said, total in run(on_several_devices, env=env, timeout=200):
        assert all("within shard_map or pmap over 2 devices" in text for text in said), said
        assert total == [0.0, 2.0, 4.0, 6.0]


FUSED = [
    ("sgd", {"lr": 0.1}),
    ("sgd", {"lr": 0.1, "momentum": 0.9}),
    ("sgd", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("adam", {"lr": 0.01}),
    ("adamw", {"lr": 0.01, "betas": (0.8, 0.99), "weight_decay": 0.2}),
]


def fused_parameters(rank=0):
    import numpy as np

    random = np.random.default_rng(rank)
    shapes = {"w1": (20, 300), "b1": (300,), "w2": (300, 5), "scale": (), "none": (0, 3)}
    return {"layers": {k: (0.1 * random.standard_normal(s)).astype("float32") for k, s in shapes.items()}}


def fused_loss(params, x, y):
    import jax.numpy as jnp

    p = params["layers"]
    return jnp.mean((jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] * (1 + p["scale"]) - y) ** 2)


def fused_batch(step, rank):
    import numpy as np

    random = np.random.default_rng(100 * step + rank)
    x = random.standard_normal((8, 20)).astype("float32")
    return x, np.sin(x[:, :5])


def rate(lr, step):
    """A schedule: the third step has half the rate."""
    return lr / 2 if step == 2 else None


def crc(tree):
    import jax
    import numpy as np

    return zlib.crc32(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree_util.tree_leaves(tree)))


def fused_ways():
    """By optimizer: checksums of rank 0's parameters as they begin, and of those after five steps."""
    import jax

    import psring.jax as ps

    ps.init(bucket_mb=0.01)
    gradient = jax.jit(jax.grad(fused_loss))
    results = []
    for name, settings in FUSED:
        optimizer = ps.FusedOptimizer(fused_parameters(ps.rank()), name, **settings)
        params = optimizer.parameters()
        first = crc(params)
        for step in range(5):
            before = crc(params)
            held = params
            params = optimizer.step(gradient(params, *fused_batch(step, ps.rank())), rate(settings["lr"], step))
            assert crc(held) == before  # what step() returned before does not change
        assert crc(optimizer.synchronize_parameters()) == crc(params)
        optimizer.close()
        results.append((first, crc(params)))
    return results


def test_jax_fused_updates_of_servers_and_ring_have_the_same_bits():
    needs("jax")
    ring = run(fused_ways, timeout=300)
    assert ring[0] == ring[1] and len({last for _, last in ring[0]}) == len(FUSED)
    assert {first for first, _ in ring[0]} == {crc(fused_parameters(0))}
    assert run(fused_ways, mode="ps", env={"PSRING_SERVERS": "2"}, timeout=300) == ring


def trained(name, settings, steps, file, load):
    """From the file where `load` says so, and into it where it does not."""
    import pickle

    import jax
    import numpy as np

    import psring.jax as ps

    params, state = fused_parameters(ps.rank()), None
    if load and ps.rank() == 0:
        with open(file, "rb") as saved:
            params, state = pickle.load(saved)
    optimizer = ps.FusedOptimizer(params, name, **settings, state=state)
    params = optimizer.parameters()
    for step in steps:
        params = optimizer.step(jax.grad(fused_loss)(params, *fused_batch(step, ps.rank())))
    state = optimizer.state()  # all ranks
    if not load and ps.rank() == 0:
        with open(file, "wb") as saved:
            pickle.dump(jax.tree_util.tree_map(np.asarray, (params, state)), saved)
    return crc(params), crc(state)


def in_parts():
    """By optimizer: checksums after six steps; and of the three steps that this job makes."""
    import psring.jax as ps

    ps.init(bucket_mb=0.01)
    directory, load = os.environ["STATE_DIRECTORY"], "STATE_LOAD" in os.environ
    results = []
    for i, (name, settings) in enumerate(FUSED):
        file = os.path.join(directory, str(i))
        whole = None if load else trained(name, settings, range(6), file, False)
        results.append((whole, trained(name, settings, range(3, 6) if load else range(3), file, load)))
    return results


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_jax_fused_updates_go_on_from_their_saved_state(mode, tmp_path):
    needs("jax")
    env = {"PSRING_SERVERS": "2", "STATE_DIRECTORY": str(tmp_path)}
    first = run(in_parts, mode=mode, env=env, timeout=300)
    second = run(in_parts, mode=mode, env={**env, "STATE_LOAD": "1"}, timeout=300)
    assert [[whole for whole, _ in rank] for rank in first] == [[end for _, end in rank] for rank in second]


def plain_update(name, settings, step, p, g, slots):
    """One step of torch.optim's, in float64, on arrays of NumPy's."""
    import numpy as np

    lr = rate(settings["lr"], step - 1) or settings["lr"]
    decay = settings.get("weight_decay", 0.0)
    if name == "adamw":
        p = p * (1 - lr * decay)
    else:
        g = g + decay * p
    if name == "sgd":
        momentum = settings.get("momentum", 0.0)
        slots[0] = momentum * slots[0] + g
        return p - lr * (g + momentum * slots[0] if settings.get("nesterov") else slots[0])
    beta1, beta2 = settings.get("betas", (0.9, 0.999))
    slots[0] = beta1 * slots[0] + (1 - beta1) * g
    slots[1] = beta2 * slots[1] + (1 - beta2) * g * g
    return p - lr * (slots[0] / (1 - beta1**step)) / (np.sqrt(slots[1] / (1 - beta2**step)) + 1e-8)


def flat(tree):
    import jax
    import numpy as np

    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree_util.tree_leaves(tree)]).tolist()


def fused_and_plain():
    """By optimizer, parameters from step() outside of jit, from step() inside, and from plain_update()."""
    import jax
    import numpy as np

    import psring.jax as ps

    ps.init()
    results = []
    for name, settings in FUSED:
        eager, inside = (ps.FusedOptimizer(fused_parameters(), name, **settings) for _ in range(2))

        @jax.jit
        def jitted(params, x, y, lr):
            return inside.step(jax.grad(fused_loss)(params, x, y), lr=lr)

        of_eager, of_inside = eager.parameters(), inside.parameters()
        plain, structure = jax.tree_util.tree_flatten(fused_parameters())
        slots = [[np.zeros(p.shape), np.zeros(p.shape)] for p in plain]
        for step in range(5):
            batch = fused_batch(step, 0)
            lr = rate(settings["lr"], step)
            of_eager = eager.step(jax.grad(fused_loss)(of_eager, *batch), lr=lr)
            of_inside = jitted(of_inside, *batch, lr or settings["lr"])
            now = jax.tree_util.tree_unflatten(structure, [p.astype("float32") for p in plain])
            grads = jax.tree_util.tree_leaves(jax.grad(fused_loss)(now, *batch))
            plain = [
                plain_update(name, settings, step + 1, p, np.asarray(g, dtype=np.float64), s)
                for p, g, s in zip(plain, grads, slots)
            ]
        results.append([flat(tree) for tree in (of_eager, of_inside, plain)])
    return results


@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_jax_fused_updates_are_plain_ones_within_rounding(mode):
    needs("jax")
    for eager, inside, plain in run(fused_and_plain, size=1, mode=mode, timeout=300)[0]:
        assert eager == pytest.approx(plain, rel=1e-3, abs=1e-5)
        assert inside == pytest.approx(plain, rel=1e-3, abs=1e-5)


def fused_in_jit():
    """(loss before, loss after, checksum); several steps in one call of a jitted function."""
    import jax
    import numpy as np

    import psring.jax as ps

    ps.init()
    optimizer = ps.FusedOptimizer(fused_parameters(ps.rank()), "adam", lr=0.01)
    batches = [np.stack(arrays) for arrays in zip(*(fused_batch(step, ps.rank()) for step in range(30)))]

    @jax.jit
    def epoch(params, xs, ys):
        def step(params, batch):
            loss, grads = jax.value_and_grad(fused_loss)(params, *batch)
            return optimizer.step(grads), loss

        return jax.lax.scan(step, params, (xs, ys))

    params, losses = epoch(optimizer.parameters(), *batches)
    params, others = epoch(params, *batches)
    params = optimizer.synchronize_parameters()
    ps.log(accuracy=0.5)
    return float(losses[0]), float(others.mean()), crc(params)


@pytest.mark.parametrize("mode, sync", [("ring", "bsp"), ("ps", "bsp"), ("ps", "ssp:2"), ("ps", "async")])
def test_jax_fused_updates_train_inside_jit(mode, sync, tmp_path):
    needs("jax")
    env = {"PSRING_SYNC": sync, "PSRING_METRICS_DIR": str(tmp_path)}
    ranks = run(fused_in_jit, mode=mode, env=env, timeout=200)
    assert all(after < before / 3 for before, after, _ in ranks), ranks
    assert ranks[0][2] == ranks[1][2]
    if not os.environ.get("PSRING_LIBRARY"):
        return  # the stand-in writes no files
    lines = [json.loads(line) for line in (tmp_path / "worker-0.jsonl").read_text().splitlines()]
    found = {line["event"]: line for line in lines}
    assert found["model"]["num_parameters"] == 20 * 300 + 300 + 300 * 5 + 1
    assert found["epoch"]["step"] == found["end"]["step"] == 60
    assert found["end"]["weights_crc32"] == ranks[0][2]


def fused_mistakes():
    import jax
    import jax.numpy as jnp

    import psring.jax as ps

    ps.init()
    params = fused_parameters()
    optimizer = ps.FusedOptimizer(params, "sgd", lr=0.1)
    other = {"layers": {**params["layers"], "b1": jnp.zeros(7)}}
    half = jax.tree_util.tree_map(lambda p: jnp.asarray(p, dtype=jnp.float16), params)
    more = {**params, "bias": jnp.zeros(2)} if ps.rank() else params
    said = []
    for call in (
        lambda: ps.FusedOptimizer(params, "lion"),
        lambda: ps.FusedOptimizer(params, "adam", momentum=0.9),
        lambda: ps.FusedOptimizer(params, "sgd", lr=-0.1),
        lambda: ps.FusedOptimizer(half, "sgd"),
        lambda: ps.FusedOptimizer(params, "sgd", state=42),
        lambda: ps.FusedOptimizer(params, "sgd", sync="async"),
        lambda: optimizer.step(params, lr=-1.0),
        lambda: optimizer.step(params["layers"]),
        lambda: optimizer.step(other),
        lambda: ps.FusedOptimizer(more, "sgd"),
        lambda: ps.FusedOptimizer(params, "sgd", lr=0.1 + ps.rank()),
    ):
        try:
            call()
            said.append("")
        except (TypeError, ValueError, ps.PsringError) as error:
            said.append(str(error))
    optimizer.step(params)  # none of them has harmed it
    optimizer.close()
    try:
        optimizer.step(params)
    except RuntimeError as error:
        said.append(str(error))
    return said


def test_mistakes_with_jax_fused_updates_get_one_clear_error():
    needs("jax")
    for rank, said in enumerate(run(fused_mistakes, timeout=200)):
        expected = [
            (f"rank {rank}", "'lion'", 'use "sgd", "adam" or "adamw"'),
            (f"rank {rank}", "'momentum'", "betas"),
            (f"rank {rank}", "lr=-0.1", "pass a number from 0 on"),
            (f"rank {rank}", "['layers']['b1'] is float16", ".astype(jnp.float32)"),
            (f"rank {rank}", "state=42", "what state() has returned"),
            ('sync="async" needs mode="ps"',),
            (f"rank {rank}", "lr=-1", "pass a number from 0 on"),
            (f"rank {rank}", "['layers']['b1'] is missing", "jax.grad"),
            (f"rank {rank}", "['layers']['b1'] is float32[7], its parameter float32[300]"),
            ("ranks 0 and 1 differ", "['layers']['b1'] float32[300] on rank 0", "['bias'] float32[2] on rank 1"),
            ("ranks 0 and 1 differ", "lr=0.1", "lr=1.1"),
            ("closed", "make a new one"),
        ]
        assert len(said) == len(expected)
        for text, parts in zip(said, expected):
            assert all(part in text for part in parts), (text, parts)


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


def means_of_tensors():
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    ones, found = keras.ops.ones(2) * (ps.rank() + 1), []
    values = [keras.ops.cast(ones, "bfloat16"), keras.ops.convert_to_numpy(keras.ops.cast(ones, "bfloat16"))]
    if keras.backend.backend() == "torch":
        values.append(ones.requires_grad_() * 1)
    for value in values:
        for reduce in (ps.mean, ps.sum):
            result = reduce(value)
            found.append((result.dtype == np.float32, result.tolist()))
    return found


@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_keras_means_of_losses_in_bfloat16_and_of_those_with_gradients(backend):
    needs("keras", backend)
    for found in run(means_of_tensors, env={"KERAS_BACKEND": backend}, timeout=200):
        assert found == [(True, [1.5, 1.5]), (True, [3.0, 3.0])] * (3 if backend == "torch" else 2)


def loaded():
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    keras.utils.set_random_seed(0)
    x = np.random.RandomState(ps.rank()).randn(32, 3).astype("float32")

    def fit(model):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            model.fit(x, x[:, :2], batch_size=8, verbose=0, shuffle=False, callbacks=[ps.BroadcastCallback()])
        return [str(w.message) for w in seen if "DistributedOptimizer" in str(w.message)]

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), loss="mse")
    said = [fit(model)]
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder + "/saved.keras")
        again, plain = (keras.saving.load_model(folder + "/saved.keras") for _ in range(2))
    said.append(fit(plain))
    again.optimizer = ps.DistributedOptimizer(again.optimizer)
    said += [fit(again), fit(model)]
    weights = [[np.asarray(keras.ops.convert_to_numpy(w)).tolist() for w in m.weights] for m in (model, again, plain)]
    return said, weights


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_keras_says_where_a_loaded_model_exchanges_nothing(backend):
    needs("keras", backend)
    (said, first), (_, second) = run(loaded, env={"KERAS_BACKEND": backend}, timeout=200)
    assert [len(warnings_of) for warnings_of in said] == [0, 1, 0, 0], said
    assert "model.optimizer = psring.keras.DistributedOptimizer(model.optimizer)" in said[1][0]
    assert first[:2] == second[:2] and first[0] == first[1] and first[2] != second[2]


def without_input():
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    keras.utils.set_random_seed(ps.rank())
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.Adam(0.1)), loss="mse")
    x = np.random.RandomState(ps.rank()).randn(32, 3).astype("float32")
    model.fit(x, x[:, :2], batch_size=8, epochs=2, verbose=0, callbacks=[ps.BroadcastCallback()])
    return [np.asarray(keras.ops.convert_to_numpy(w)).tolist() for w in model.weights]


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_keras_models_that_the_first_batch_builds_get_the_roots_weights(backend):
    needs("keras", backend)
    first, second = run(without_input, env={"KERAS_BACKEND": backend}, timeout=200)
    assert first == second


def with_scaled_loss():
    """Rank 1's gradients of one batch are not finite: all ranks skip it."""
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    keras.utils.set_random_seed(ps.rank())
    keras.config.set_dtype_policy("mixed_float16")
    try:
        ps.DistributedOptimizer(keras.optimizers.SGD(0.1))
        said = ""
    except ValueError as error:
        said = str(error)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    optimizer = ps.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
    model.compile(optimizer=optimizer, loss="mse")
    x = np.random.RandomState(ps.rank()).randn(32, 3).astype("float32")
    x[8:16] *= 1e30 if ps.rank() else 1
    model.fit(x, x[:, :2], batch_size=8, verbose=0, shuffle=False, callbacks=[ps.BroadcastCallback()])
    weights = [np.asarray(keras.ops.convert_to_numpy(w)) for w in model.weights]
    return said, all(np.isfinite(w).all() for w in weights), [w.tolist() for w in weights]


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_keras_skips_a_step_by_everybodys_gradients(backend):
    needs("keras", backend)
    first, second = run(with_scaled_loss, env={"KERAS_BACKEND": backend}, timeout=200)
    assert "mixed_bfloat16, or DistributedOptimizer(keras.optimizers.LossScaleOptimizer(" in first[0]
    assert first[1] and first[1:] == second[1:]


def weights_of_many_types():
    import pickle
    import types

    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    loads, pickle.loads = pickle.loads, None  # none of psring's own calls unpickles
    kinds = {"bfloat16": (3, 2), "uint8": (3,), "float32": (2, 2), "int64": (), "float16": (0, 2)}
    start = 3 + ps.rank()
    weights = [keras.Variable(np.full(shape, start), dtype=kind, trainable=False) for kind, shape in kinds.items()]
    model = types.SimpleNamespace(weights=weights)
    ps.broadcast_weights(model, root_rank=1)
    pickle.loads = loads
    values = [np.asarray(keras.ops.convert_to_numpy(variable)) for variable in weights]
    return [(str(value.dtype), bool((value == 4).all())) for value in values]


def test_keras_weights_of_many_types_become_the_roots():
    needs("keras", "torch")
    ranks = run(weights_of_many_types, env={"KERAS_BACKEND": "torch"}, timeout=200)
    assert ranks[0] == ranks[1] and all(alike for _, alike in ranks[0])
    assert [kind for kind, _ in ranks[0]] == ["bfloat16", "uint8", "float32", "int64", "float16"]


def layers_by_data():
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.one, self.other = (
                keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros") for _ in range(2)
            )

        def build(self, shape):
            self.one.build((None, 1))
            self.other.build((None, 1))
            self.built = True

        def call(self, x):
            return self.one(x) if float(x.sum()) > 0 else self.other(x)

    model = Model()
    model.build(None)
    model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.SGD(1.0)), loss=lambda y, out: -out)
    x = np.full((8, 1), 1.0 if ps.rank() == 0 else -3.0, "float32")
    model.fit(x, x, batch_size=8, epochs=1, verbose=0)
    return [float(weights.item()) for weights in model.get_weights()]


def test_keras_ranks_may_use_different_layers_on_torch():
    needs("keras", "torch")
    assert run(layers_by_data, env={"KERAS_BACKEND": "torch"}, timeout=200) == [[0.5, -1.5]] * 2


def rates_of_batches():
    """A callback, and the list to which it adds the learning rate of every batch."""
    import keras
    import numpy as np

    rates = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(np.asarray(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))))

    return Watch(), rates


def callbacks():
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.SGD(0.4)), loss="mse")
    watch, rates = rates_of_batches()
    x = np.random.RandomState(ps.rank()).randn(32, 3).astype("float32")
    data = x, x[:, :2]
    if os.environ["STEPS"] == "unknown":
        import torch

        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(zip(x, x[:, :2]))

        data = torch.utils.data.DataLoader(Stream(), batch_size=8), None
    history = model.fit(
        *data, batch_size=8, epochs=3, verbose=0,
        callbacks=[ps.BroadcastCallback(), ps.LearningRateWarmupCallback(0.4, 2.0), ps.MetricAverageCallback(), watch],
    )  # fmt: skip
    return rates, history.history["loss"]


def test_keras_callbacks():
    needs("keras", "jax")
    env = {"KERAS_BACKEND": "jax", "STEPS": "known"}
    (rates, losses), (_, others) = run(callbacks, env=env, timeout=200)
    assert rates == pytest.approx([0.225, 0.25, 0.275, 0.3, 0.325, 0.35, 0.375, 0.4] + [0.4] * 4)
    assert losses == others  # the mean of both, though their data differ


def warm_up_before_a_schedule():
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer=ps.DistributedOptimizer(keras.optimizers.SGD(1.0)), loss="mse")
    watch, rates = rates_of_batches()
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.4 if epoch < 1 else 0.01)
    x = np.ones((16, 3), dtype="float32")
    for first in (0, 1):
        model.fit(x, x[:, :1], batch_size=8, epochs=2, initial_epoch=first, verbose=0,
                  callbacks=[ps.LearningRateWarmupCallback(0.4, 1.0), schedule, watch])  # fmt: skip
    return rates


def test_keras_warm_up_leaves_the_rate_to_what_follows():
    needs("keras", "jax")
    [rates] = run(warm_up_before_a_schedule, size=1, env={"KERAS_BACKEND": "jax"}, timeout=200)
    assert rates == pytest.approx([0.4, 0.4] + [0.01] * 4)


def test_keras_warm_up_where_an_epochs_steps_are_unknown():
    needs("keras", "jax", "torch")
    (rates, _), _ = run(callbacks, env={"KERAS_BACKEND": "jax", "STEPS": "unknown"}, timeout=200)
    assert rates == pytest.approx([0.2] * 4 + [0.325, 0.35, 0.375, 0.4] + [0.4] * 4)


@pytest.mark.parametrize(
    "script, packages, args",
    [
        ("keras_mnist.py", ("keras", "jax", "torch"), []),
        ("tensorflow_digits.py", ("tensorflow", "torch"), []),
        ("jax_mlp.py", ("jax", "torch"), []),
        ("jax_mlp.py", ("jax", "torch"), ["--update=local"]),
    ],
)
def test_example(script, packages, args):
    needs(*packages)
    backend = "tensorflow" if "tensorflow" in packages else "jax"
    ranks = run_script(
        os.path.join(EXAMPLES, script), 2, args=["--epochs=1", *args], env={"KERAS_BACKEND": backend}, timeout=200,
        fresh=True,
    )  # fmt: skip
    for rank, (code, out, err) in enumerate(ranks):
        assert code == 0, err
        assert ("accuracy" in out) == (rank == 0)


@pytest.mark.parametrize("mode, order", [("ring", "FIRST"), ("ps", "LAST")])
def test_all_frameworks_in_one_process(mode, order, tmp_path):
    """Whoever loads protobuf and absl first, everybody has its own."""
    needs("tensorflow", "jax", "keras", "torch")
    if not os.environ.get("PSRING_LIBRARY"):
        pytest.skip("PSRING_LIBRARY is not set, and the stand-in has no protobuf")
    env = {"KERAS_BACKEND": "tensorflow", "PSRING_SERVERS": "2"}
    script = os.path.join(HERE, "all_frameworks.py")
    for code, _, err in run_script(script, 2, mode=mode, args=[order, str(tmp_path)], env=env, timeout=300, fresh=True):
        assert code == 0, err
    ranks = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    for said in ranks:
        assert said["mode"] == mode and said["backend"] == "tensorflow"
        assert said["tensorflow"] == said["tensorflow again"] == [True, 6.0, 8.0]
        assert said["jax"] == [6.0] * 3
        assert "'uneven': rank 0 brings 2 float32, rank 1 brings 3 float32" in said["refused"]
    assert ranks[0]["keras"] == ranks[1]["keras"] and ranks[0]["torch"] == ranks[1]["torch"]
