"""A small ResNet and a small transformer. Both take images of bytes and scale them themselves, on the device."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from .data import Shape
from .options import Options


def build(options: Options, shape: Shape) -> nn.Module:
    """The model of the options, with weights that depend on the seed alone."""
    torch.manual_seed(options.seed)
    numbers: nn.Module = Scale()
    if shape.codes:
        numbers, shape = Bits(), replace(shape, channels=8 * shape.channels)
    match options.model:
        case "resnet":
            body: nn.Module = ResNet(shape, width=options.width or (64 if shape.side > 64 else 16))
        case "transformer":
            body = Transformer(shape, width=options.width or (384 if shape.side > 64 else 64), dropout=options.dropout)
        case other:
            raise ValueError(other)
    return nn.Sequential(numbers, body)


class Scale(nn.Module):
    """Bytes to numbers about zero. Images cross to the device as bytes: a quarter of the transfer of floats."""

    def forward(self, images: Tensor) -> Tensor:
        return images.float().sub_(127.5).mul_(1 / 64)


class Bits(nn.Module):
    """Each bit of a byte as a channel: that two letters have near codes says nothing about them."""

    places: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.arange(8, dtype=torch.uint8).view(8, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return ((images[:, :, None] >> self.places) & 1).flatten(1, 2).float().sub_(0.5).mul_(2)


class Block(nn.Module):
    """Two convolutions and a way past them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.past: nn.Module = nn.Identity()
        if stride > 1 or inside != outside:
            self.past = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, images: Tensor) -> Tensor:
        inner = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(images)))))
        return functional.relu(inner + self.past(images))


class ResNet(nn.Module):
    """The ResNet of He et al.: large images get the stem that first shrinks them by four."""

    def __init__(self, shape: Shape, *, width: int) -> None:
        super().__init__()
        large = shape.side > 64
        stem = nn.Conv2d(shape.channels, width, 7 if large else 3, 2 if large else 1, 3 if large else 1, bias=False)
        shrink: nn.Module = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        widths = [width * 2**stage for stage in range(4 if large else 3)]
        blocks = []
        for stage, (inside, outside) in enumerate(zip([width, *widths], widths, strict=False)):
            blocks.append(Block(inside, outside, stride=1 if large and not stage else 2))
            if large:
                blocks.append(Block(outside, outside, stride=1))
        self.features = nn.Sequential(stem, nn.BatchNorm2d(width), nn.ReLU(), shrink, *blocks)
        self.head = nn.Linear(widths[-1], shape.classes)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(images).mean((2, 3)))
        return scores


class Transformer(nn.Module):
    """A vision transformer: patches of the image are its words."""

    def __init__(self, shape: Shape, *, width: int, dropout: float, depth: int = 4) -> None:
        super().__init__()
        patch = max(2, shape.side // 14 if shape.side > 64 else shape.side // 8)
        self.patches = nn.Conv2d(shape.channels, width, patch, patch)
        self.places = nn.Parameter(torch.randn(1, (shape.side // patch) ** 2, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, max(1, width // 32), 4 * width, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, shape.classes)

    def forward(self, images: Tensor) -> Tensor:
        words = self.patches(images).flatten(2).transpose(1, 2) + self.places
        scores: Tensor = self.head(self.layers(words).mean(1))
        return scores
