"""Images of digits for the examples: MNIST's files, or digits drawn here."""

import gzip
import os
import struct

import torch

# Seven segments: top, upper left, upper right, middle, lower left, lower right, bottom.
_SEGMENTS = [119, 36, 93, 109, 46, 107, 123, 37, 127, 111]
_LINES = [(0, 4, 1, 12), (1, 4, 8, 1), (1, 15, 8, 1), (9, 4, 1, 12), (10, 4, 8, 1), (10, 15, 8, 1), (18, 4, 1, 12)]


def _read_idx(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        data = file.read()
    dimensions = data[3]
    shape = struct.unpack(f">{dimensions}I", data[4 : 4 + 4 * dimensions])
    return torch.frombuffer(bytearray(data[4 + 4 * dimensions :]), dtype=torch.uint8).view(shape)


def _find(folder, name):
    for ending in ("", ".gz"):
        path = os.path.join(folder, name + ending)
        if os.path.exists(path):
            return path
    raise FileNotFoundError(f"{folder} has no {name} (or {name}.gz): it should hold MNIST's four IDX files")


def load(folder=None, train=True, count=4000):
    """A dataset of (1 x 28 x 28 floats, label): MNIST's in `folder`, else drawn."""
    if folder:
        prefix = "train" if train else "t10k"
        images = _read_idx(_find(folder, prefix + "-images-idx3-ubyte"))
        labels = _read_idx(_find(folder, prefix + "-labels-idx1-ubyte"))
        return torch.utils.data.TensorDataset(images.unsqueeze(1).float() / 255, labels.long())
    random = torch.Generator().manual_seed(1 if train else 2)
    labels = torch.randint(10, (count,), generator=random)
    images = 0.3 * torch.rand(count, 1, 28, 28, generator=random)
    places = torch.randint(0, 8, (count, 2), generator=random)
    for image, label, (y, x) in zip(images, labels.tolist(), places.tolist()):
        for segment, (top, left, height, width) in enumerate(_LINES):
            if _SEGMENTS[label] >> segment & 1:
                image[0, y + top : y + top + height, x + left : x + left + width] += 0.6
    return torch.utils.data.TensorDataset(images.clamp(0, 1), labels)
