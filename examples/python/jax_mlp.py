"""JAX: a fused update within jit, or an allreduce of the gradients' pytree.

    psring run -n 2 -- python3 jax_mlp.py [--update=local] [--data DIR]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import digits
import psring.jax as ps

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with MNIST's IDX files; without it, digits are drawn")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument(
    "--update", choices=["fused", "local"], default="fused",
    help="who applies the gradients: the servers or the ring, or this script",
)  # fmt: skip


def arrays(dataset):
    """This rank's part of a dataset, as NumPy arrays."""
    images, labels = dataset.tensors
    images = np.asarray(images).reshape(len(labels), -1)
    return images[ps.rank() :: ps.size()], np.asarray(labels)[ps.rank() :: ps.size()]


def make_parameters(key):
    first, second = jax.random.split(key)
    return {
        "w1": jax.random.normal(first, (784, 128)) * 0.05, "b1": jnp.zeros(128),
        "w2": jax.random.normal(second, (128, 10)) * 0.1, "b2": jnp.zeros(10),
    }  # fmt: skip


def logits_of(p, x):
    return jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def loss_of(p, x, y):
    return -jnp.mean(jax.nn.log_softmax(logits_of(p, x))[jnp.arange(len(y)), y])


def main():
    args = parser.parse_args()
    ps.init()

    parameters = make_parameters(jax.random.key(ps.rank()))
    if args.update == "fused":
        optimizer = ps.FusedOptimizer(parameters, "sgd", lr=args.lr)
        parameters = optimizer.parameters()
    else:
        parameters = ps.broadcast(parameters)

    @jax.jit
    def step(p, x, y):
        grads = jax.grad(loss_of)(p, x, y)
        if args.update == "fused":
            return optimizer.step(grads)
        grads = ps.allreduce(grads, name="gradients")
        return jax.tree_util.tree_map(lambda value, grad: value - args.lr * grad, p, grads)

    images, labels = arrays(digits.load(args.data, train=True))
    batches = len(labels) // args.batch_size
    order = np.random.default_rng(ps.rank())
    for _ in range(args.epochs):
        for rows in order.permutation(len(labels))[: batches * args.batch_size].reshape(batches, -1):
            parameters = step(parameters, images[rows], labels[rows])
    if args.update == "fused":
        parameters = optimizer.synchronize_parameters()
    images, labels = arrays(digits.load(args.data, train=False, count=1000))
    right = jnp.mean(jnp.argmax(logits_of(parameters, images), axis=1) == labels)
    accuracy = float(ps.allreduce(right, name="accuracy"))
    if ps.rank() == 0:
        ps.log(accuracy=accuracy)
        print(f"accuracy {100 * accuracy:.1f}%", flush=True)


if __name__ == "__main__":
    main()
