"""TensorFlow: a loop of the script's own, in tf.function, with Horovod's names.

    psring run -n 2 -- python3 tensorflow_digits.py [--data DIR]
"""

import argparse

import numpy as np
import tensorflow as tf

import digits
import psring.tensorflow as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with MNIST's IDX files; without it, digits are drawn")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.001)


def arrays(dataset):
    """This rank's part of a dataset, as NumPy arrays."""
    images, labels = dataset.tensors
    images = np.moveaxis(np.asarray(images), 1, -1)
    return images[hvd.rank() :: hvd.size()], np.asarray(labels)[hvd.rank() :: hvd.size()]


def main():
    args = parser.parse_args()
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    model = tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            tf.keras.layers.Conv2D(8, 5, activation="relu"),
            tf.keras.layers.MaxPooling2D(4),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.Adam(args.lr * hvd.size())
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.variables + optimizer.variables, root_rank=0)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    images, labels = arrays(digits.load(args.data, train=True))
    whole = len(labels) // args.batch_size * args.batch_size  # as many batches on every rank
    dataset = tf.data.Dataset.from_tensor_slices((images[:whole], labels[:whole]))
    for _ in range(args.epochs):
        for batch in dataset.shuffle(whole).batch(args.batch_size):
            step(*batch)
    images, labels = arrays(digits.load(args.data, train=False, count=1000))
    right = np.mean(np.argmax(model(images), axis=1) == labels)
    accuracy = hvd.mean(float(right))
    if hvd.rank() == 0:
        hvd.log(accuracy=accuracy)
        print(f"accuracy {100 * accuracy:.1f}%", flush=True)


if __name__ == "__main__":
    main()
