"""What psring.keras's DistributedOptimizer refuses, each by one clear error."""

import json
import os

import pytest

from ranks import run
from test_other_frameworks import needs


def constructor_mistakes():
    import keras

    import psring.keras as ps

    ps.init()
    opt = keras.optimizers

    class Mine(opt.SGD):
        def update_step(self, gradient, variable, learning_rate):
            pass

    tries = [
        (opt.SGD(0.1, clipnorm=1.0), {}),
        (opt.SGD(0.1, clipvalue=1.0), {}),
        (opt.Adam(0.1, global_clipnorm=1.0), {}),
        (opt.Adam(0.1, use_ema=True), {}),
        (opt.Adam(0.1, gradient_accumulation_steps=2), {}),
        (opt.Adam(0.1, loss_scale_factor=8.0), {}),
        (opt.Adam(0.1, amsgrad=True), {}),
        (opt.SGD(0.1, momentum=0.9, weight_decay=0.01), {}),
        (opt.Lion(0.1), {}),
        (Mine(0.1), {}),
        (opt.SGD(0.1), {"op": ps.Sum}),
        (opt.SGD(0.1), {"sync": "async"}),
        (opt.SGD(0.1), {"update": "local", "compress": "int8"}),
        (opt.SGD(0.1), {"update": "local", "bucket_mb": 3}),
        (opt.SGD(0.1), {"update": "servers"}),
        ("adam", {}),
        (opt.LossScaleOptimizer(opt.SGD(0.1)), {"update": "local"}),
        # With the dtype policy mixed_float16.
        (opt.SGD(0.1), {}),
        (opt.SGD(0.1), {"update": "local"}),
    ]
    said = []
    for optimizer, settings in tries:
        try:
            ps.DistributedOptimizer(optimizer, **{"update": "fused", **settings})
            said.append("")
        except (TypeError, ValueError) as error:
            said.append(str(error))
        keras.config.set_dtype_policy("mixed_float16" if len(said) >= len(tries) - 2 else "float32")
    return said


def test_what_a_fused_update_cannot_do_is_refused_by_name():
    needs("keras", "jax")
    [said] = run(constructor_mistakes, size=1, env={"KERAS_BACKEND": "jax"}, timeout=200)
    local = 'use update="local"'
    expected = [
        ("SGD(clipnorm=1.0)", local), ("SGD(clipvalue=1.0)", local), ("Adam(global_clipnorm=1.0)", local),
        ("Adam(use_ema=True)", local), ("Adam(gradient_accumulation_steps=2)", local),
        ("Adam(loss_scale_factor=8.0)", local), ("Adam(amsgrad=True)", local),
        ("SGD(momentum=0.9, weight_decay=0.01)", local), ("supports SGD, Adam and AdamW, not Lion", local),
        ("AdamW, not Mine", local), ("op=Sum", "multiply the learning rate"), ('sync="async" needs mode="ps"',),
        ('compress="int8"', 'update="fused"'), ("bucket_mb=3", 'update="fused"'), ('"local" or "fused"',),
        ("'adam'", "keras.optimizers.Adam(1e-3)"), ("LossScaleOptimizer on JAX", "mixed_bfloat16"),
        ("mixed_float16", "mixed_bfloat16"), ("mixed_float16", "mixed_bfloat16"),
    ]  # fmt: skip
    assert len(said) == len(expected)
    for text, parts in zip(said, expected):
        assert all(part in text for part in parts), (text, parts)


def step_mistakes():
    """Of ranks that differ, of variables, and of an optimizer that changes; and at the end a step."""
    import keras
    import numpy as np

    import psring.keras as ps

    ps.init()
    said = []

    def attempt(optimizer, *variables, grads=None):
        grads = [np.ones(v.shape, "float32") for v in variables] if grads is None else grads
        try:
            optimizer.apply([keras.ops.convert_to_tensor(g) for g in grads], list(variables))
            said.append("")
        except (RuntimeError, ValueError, ps.PsringError) as error:
            said.append(str(error))

    def sgd(rate=0.1, **settings):
        return ps.DistributedOptimizer(keras.optimizers.SGD(rate, **settings), update="fused")

    two, three = keras.Variable([1.0, 2.0], name="two"), keras.Variable([1.0, 2.0, 3.0], name="three")
    attempt(sgd(), keras.Variable([1.0], dtype="float16", name="half"))
    bounded = keras.Variable([1.0], name="bounded")
    bounded.constraint = keras.constraints.NonNeg()  # as layers do
    attempt(sgd(), bounded)
    attempt(sgd(), three if ps.rank() else two)
    attempt(sgd(0.1 + ps.rank()), two)
    attempt(sgd(-1.0), two)
    frozen = sgd()
    frozen.build([two, three])
    attempt(frozen, two)
    changed = sgd(momentum=0.5)
    changed.momentum = 0.9
    attempt(changed, two)
    attempt(frozen, two, three)
    return said, [keras.ops.convert_to_numpy(v).tolist() for v in (two, three)]


def test_mistakes_in_a_fused_step_get_one_clear_error():
    needs("keras", "torch")
    for rank, (said, values) in enumerate(run(step_mistakes, env={"KERAS_BACKEND": "torch"}, timeout=200)):
        expected = [
            (f"rank {rank}", "variable half of float16", 'use update="local"'),
            (f"rank {rank}", "constraint of bounded", 'use update="local"'),
            ("ranks 0 and 1 differ", "variable 0, float32[2]", "float32[3]"),
            ("ranks 0 and 1 differ", "lr=0.1", "lr=1.1"),
            (f"rank {rank}", "learning rate=-1", "pass a number from 0 on"),
            (f"rank {rank}", "2 variables", "1 for 1", "compile the model again"),
            (f"rank {rank}", "'momentum': 0.9", "only the learning rate may change"),
            (),
        ]
        assert len(said) == len(expected) and said[-1] == ""
        for text, parts in zip(said, expected):
            assert all(part in text for part in parts), (text, parts)
        assert values == [pytest.approx([0.9, 1.9]), pytest.approx([0.9, 1.9, 2.9])]


def by_policy():
    import keras

    import psring.keras as ps

    ps.init(**json.loads(os.environ["SETTINGS"]))
    kinds = {"SGD": keras.optimizers.SGD, "Lion": keras.optimizers.Lion}
    try:
        optimizer = ps.DistributedOptimizer(kinds[os.environ["OPTIMIZER"]](0.1), update=os.environ.get("UPDATE") or None)
        return type(optimizer._psring).__name__
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("mode, settings, optimizer, update, expected", [
    ("ps", {"sync": "async"}, "SGD", "", ["Fused"]),
    ("ps", {"sync": "ssp:3"}, "SGD", "", ["Fused"]),
    ("ps", {"sync": "bsp"}, "SGD", "", ["Local"]),
    ("ring", {"update": "fused", "compress": "int8"}, "SGD", "", ["Fused"]),
    ("ps", {"sync": "async"}, "SGD", "local", ['sync="async"', 'use update="fused"']),
    ("ps", {"sync": "async"}, "Lion", "", ["rank 0", "SGD, Adam and AdamW, not Lion", 'use update="local" with sync="bsp"']),
    ("ring", {"compress": "int8"}, "SGD", "", ["rank 0", 'compress="int8"', 'update="fused"']),
    ("ddp", {}, "SGD", "", ["rank 0", 'mode="ddp"', 'use "ring" or "ps"']),
])  # fmt: skip
def test_the_policy_chooses_where_the_optimizer_runs(mode, settings, optimizer, update, expected):
    needs("keras", "torch")
    env = {"KERAS_BACKEND": "torch", "SETTINGS": json.dumps(settings), "OPTIMIZER": optimizer, "UPDATE": update}
    [said] = run(by_policy, size=1, mode=mode, env=env, timeout=200)
    assert all(word in said for word in expected), said
