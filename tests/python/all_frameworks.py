"""TensorFlow, JAX, PyTorch and psring in one process: each computes, and psring sums for each.

    all_frameworks.py FIRST|LAST FOLDER     psring's library is loaded first, or last

Every rank writes what came out to FOLDER/RANK. The libraries hold protobuf and absl of other
versions each; where one used another's, it would crash or fail here.
"""

import json
import os
import sys

import psring

if sys.argv[1] == "FIRST":
    psring.init()

import tensorflow as tf  # isort: skip
import jax
import jax.numpy as jnp
import keras
import numpy as np
import torch

import psring.jax
import psring.keras
import psring.torch

psring.init()
rank = psring.rank()


def through_protobuf():
    """TensorFlow's own messages, in C++ and in Python: a graph and an example, written and read."""

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def double(x):
        return 2 * x

    graph = double.get_concrete_function().graph.as_graph_def()
    read = tf.compat.v1.GraphDef.FromString(graph.SerializeToString())
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=[3.0, 4.0]))
    example = tf.train.Example(features=tf.train.Features(feature={"x": feature})).SerializeToString()
    parsed = tf.io.parse_single_example(example, {"x": tf.io.FixedLenFeature([2], tf.float32)})
    return [read == graph, *double(parsed["x"]).numpy().tolist()]


def keras_weights():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer=psring.keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    x = np.random.RandomState(rank).randn(32, 3).astype("float32")
    history = model.fit(x, x.sum(1), batch_size=8, epochs=4, verbose=0, callbacks=[psring.keras.BroadcastCallback()])
    assert history.history["loss"][-1] < history.history["loss"][0]
    return [np.asarray(w).tolist() for w in model.get_weights()]


def jax_sum():
    return jax.jit(lambda x: psring.jax.allreduce(2 * x, op=psring.Sum))(jnp.full((3,), float(rank + 1))).tolist()


def torch_weights():
    torch.manual_seed(rank)
    model = torch.nn.Linear(3, 1)
    optimizer = psring.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    x = torch.randn(32, 3)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (model(x)[:, 0] - x.sum(1)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    return [p.tolist() for p in model.parameters()]


def refused():
    """An error that the library itself makes."""
    try:
        psring.allreduce_(np.zeros(2 + rank, "float32"), name="uneven")
    except psring.PsringError as error:
        return str(error)


said = {
    "backend": keras.backend.backend(), "mode": psring.mode(), "tensorflow": through_protobuf(), "jax": jax_sum(),
    "keras": keras_weights(), "torch": torch_weights(), "tensorflow again": through_protobuf(), "refused": refused(),
}  # fmt: skip
with open(os.path.join(sys.argv[2], str(rank)), "w") as file:
    json.dump(said, file)
