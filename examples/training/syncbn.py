"""BatchNorm over all processes, on a GPU torch's own and elsewhere one of plain collectives: torch's wants a GPU."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce


def convert(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with its BatchNorm layers synchronised."""
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(model, name, _like(child))
        else:
            convert(child, device)
    return model


class SyncBatchNorm(nn.BatchNorm2d):
    """BatchNorm whose mean and variance are those of all processes' samples together."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or not dist.is_initialized():
            return super().forward(input)
        values = input.float()
        here = values.new_full((1,), values.numel() // values.shape[1])
        sums = all_reduce(torch.cat([values.sum((0, 2, 3)), here]))  # its backward sums the gradients of all processes
        count = sums[-1].detach()
        mean = sums[:-1] / count
        values = values - mean[:, None, None]
        variance = all_reduce(values.square().sum((0, 2, 3))) / count
        with torch.no_grad():
            rate = self.momentum if self.momentum is not None else 0.1
            assert self.running_mean is not None and self.running_var is not None
            self.running_mean.lerp_(mean, rate)
            self.running_var.lerp_(variance * count / (count - 1), rate)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (values * scale[:, None, None] + self.bias[:, None, None]).to(input.dtype)


def _like(layer: nn.BatchNorm2d) -> SyncBatchNorm:
    made = SyncBatchNorm(layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)
    made.load_state_dict(layer.state_dict())
    return made
