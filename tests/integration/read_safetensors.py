"""read_safetensors.py MODEL STEPS CHECKPOINT: fails unless the checkpoint's files
hold the tensors that PyTorch gives the model and its SGD with momentum."""

import sys

import numpy as np
from safetensors.numpy import load_file

CLASSES = 10


def linear(name, outputs, inputs):
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def lenet():
    return {
        "conv1.weight": (10, 1, 5, 5),
        "conv1.bias": (10,),
        "conv2.weight": (20, 10, 5, 5),
        "conv2.bias": (20,),
        **linear("fc1", 50, 320),
        **linear("fc2", CLASSES, 50),
    }, {}


def resnet18():
    """torchvision.models.resnet18(num_classes=10) with one input channel."""
    parameters, buffers = {}, {}

    def conv_norm(conv, norm, outputs, inputs, kernel):
        parameters[f"{conv}.weight"] = (outputs, inputs, kernel, kernel)
        parameters[f"{norm}.weight"] = parameters[f"{norm}.bias"] = (outputs,)
        buffers[f"{norm}.running_mean"] = (outputs,)
        buffers[f"{norm}.running_var"] = (outputs,)
        buffers[f"{norm}.num_batches_tracked"] = ()

    conv_norm("conv1", "bn1", 64, 1, 7)
    inputs = 64
    for layer, width in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            name = f"layer{layer}.{block}"
            conv_norm(f"{name}.conv1", f"{name}.bn1", width, inputs, 3)
            conv_norm(f"{name}.conv2", f"{name}.bn2", width, width, 3)
            if inputs != width:
                down = f"{name}.downsample"
                conv_norm(f"{down}.0", f"{down}.1", width, inputs, 1)
            inputs = width
    parameters.update(linear("fc", CLASSES, 512))
    return parameters, buffers


def check_weights(weights, shapes, num_steps):
    assert {name: tensor.shape for name, tensor in weights.items()} == shapes
    for name, tensor in weights.items():
        if name.endswith("num_batches_tracked"):
            assert tensor.dtype == np.int64 and tensor == num_steps, (name, tensor)
            continue
        assert tensor.dtype == np.float32, (name, tensor.dtype)
        assert np.isfinite(tensor).all(), name
        assert tensor.ndim < 2 or tensor.std() > 0, name


def check_momentum(state, parameters):
    shapes = {name: tensor.shape for name, tensor in state.items()}
    assert shapes == {f"momentum_buffer.{k}": v for k, v in parameters.items()}


def main():
    model, num_steps, checkpoint = sys.argv[1:]
    parameters, buffers = {"lenet": lenet, "resnet18": resnet18}[model]()
    check_weights(
        load_file(f"{checkpoint}/model.safetensors"),
        {**parameters, **buffers},
        int(num_steps),
    )
    check_momentum(load_file(f"{checkpoint}/optimizer.safetensors"), parameters)


main()
