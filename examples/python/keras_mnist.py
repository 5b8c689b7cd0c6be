"""Keras 3 on any of its backends, in the ring or through parameter servers.

    KERAS_BACKEND=jax psring run -n 2 -- python3 keras_mnist.py [--data DIR]
    psring run -n 4 --mode=ps --servers=2 --sync=async -- python3 keras_mnist.py

Where all ranks step together, Keras applies the mean of their gradients; with --sync=async
or ssp:K the servers apply every gradient.
"""

import argparse
import os

import keras
import numpy as np

import digits
import psring.keras as ps

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with MNIST's IDX files; without it, digits are drawn")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.05)


def arrays(dataset):
    """This rank's part of a dataset, as NumPy arrays."""
    images, labels = dataset.tensors
    images = np.moveaxis(np.asarray(images), 1, -1)
    return images[ps.rank() :: ps.size()], np.asarray(labels)[ps.rank() :: ps.size()]


def main():
    args = parser.parse_args()
    ps.init()
    keras.utils.set_random_seed(ps.rank())
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(8, 5, activation="relu"),
            keras.layers.MaxPooling2D(4),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    # In ssp and async the servers apply every gradient in full, and late, which adds to the momentum.
    together = os.environ.get("PSRING_SYNC", "bsp") == "bsp"
    rate, momentum = (args.lr * ps.size(), 0.9) if together else (args.lr, 0.5)
    model.compile(
        optimizer=ps.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=momentum)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    images, labels = arrays(digits.load(args.data, train=True))
    whole = len(labels) // args.batch_size * args.batch_size  # as many batches on every rank
    model.fit(
        images[:whole], labels[:whole], batch_size=args.batch_size, epochs=args.epochs, verbose=0,
        callbacks=[ps.BroadcastCallback(), ps.MetricAverageCallback(), ps.LearningRateWarmupCallback(rate, 1.0)],
    )  # fmt: skip
    model.optimizer.synchronize_parameters()  # of ssp and async
    images, labels = arrays(digits.load(args.data, train=False, count=1000))
    _, accuracy = model.evaluate(images, labels, verbose=0)
    accuracies = ps.allgather_object(accuracy)
    if ps.rank() == 0:
        mean = sum(accuracies) / len(accuracies)
        ps.log(accuracy=mean)
        print(f"{keras.backend.backend()}: accuracy {100 * mean:.1f}%", flush=True)


if __name__ == "__main__":
    main()
