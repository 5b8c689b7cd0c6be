"""torchvision's resnet18 and resnet50, as worker/models/resnet.cc has them, for any number of
channels and classes. Needs nothing but torch.
"""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, wide, out, stride, deep):
        super().__init__()
        sides = [(wide, out, 3, stride), (out, out, 3, 1)]
        if deep:
            sides = [(wide, out, 1, 1), (out, out, 3, stride), (out, 4 * out, 1, 1)]
        layers = []
        for i, (a, b, kernel, step) in enumerate(sides):
            layers += [nn.ReLU(inplace=True)] if i > 0 else []
            layers += [nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False),
                       nn.BatchNorm2d(b)]
        self.layers = nn.Sequential(*layers)
        last = sides[-1][1]
        self.around = nn.Identity() if stride == 1 and wide == last else nn.Sequential(
            nn.Conv2d(wide, last, 1, stride, bias=False), nn.BatchNorm2d(last))

    def forward(self, x):
        return torch.relu(self.layers(x) + self.around(x))


def resnet(name, channels, classes):
    deep = name == 'resnet50'
    layers = [nn.Conv2d(channels, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64),
              nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    wide = 64
    for i, blocks in enumerate((3, 4, 6, 3) if deep else (2, 2, 2, 2)):
        for j in range(blocks):
            out = 64 << i
            layers.append(Block(wide, out, 2 if i > 0 and j == 0 else 1, deep))
            wide = 4 * out if deep else out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(wide, classes))
