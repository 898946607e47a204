"""What this image computes, bit by bit: a hash of each result, and figures to compare with where bits may differ."""

import hashlib
import os

FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "asimd", "sve", "bf16", "i8mm")


def facts(device):
    """The results, and what they depend on: the CPU's capability and maker, or the GPU, and the threads."""
    import torch

    results = _results(torch, device)
    return {
        "key": _key(torch, device),
        "hashes": {name: _hash(torch, value) for name, value in results.items()},
        "values": {name: _values(value) for name, value in results.items()},
    }


def _key(torch, device):
    if device == "cuda":
        return {"device": torch.cuda.get_device_name(0), "threads": 0, "torch": torch.__version__}
    asked = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", lambda: "")
    try:
        with open("/proc/cpuinfo") as file:
            vendor, flags = cpu(file.read())
    except OSError:
        vendor, flags = "", ""
    capability = " ".join(filter(None, [asked(), vendor, flags]))
    return {"device": capability or os.uname().machine, "threads": torch.get_num_threads(), "torch": torch.__version__}


def cpu(text):
    """The maker of a CPU and those of its features that libraries choose their code by, from /proc/cpuinfo."""
    fields = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return fields.get("vendor_id") or fields.get("CPU implementer", ""), " ".join(f for f in FLAGS if f in flags)


def _input(torch, device, *shape):
    """Numbers of either sign that no generator makes: the same for every release and device."""
    count = 1
    for size in shape:
        count *= size
    return (
        ((torch.arange(count, dtype=torch.int64) * 7919 % 1009).to(torch.float32) / 504.5 - 1).reshape(shape).to(device)
    )


def _results(torch, device):
    a, b = _input(torch, device, 192, 160), _input(torch, device, 160, 128)
    image, filters = _input(torch, device, 2, 8, 20, 20), _input(torch, device, 8, 8, 3, 3)
    functional = torch.nn.functional
    return {
        "gemm": a @ b,
        "gemm.bfloat16": (a.bfloat16() @ b.bfloat16()).float(),
        "convolution": functional.conv2d(image, filters),
        "softmax": functional.softmax(a * 4, -1),
        "layer_norm": functional.layer_norm(a, [160]),
        "gelu": functional.gelu(a),
        "sum": a.sum(0),
        "fft": torch.view_as_real(torch.fft.rfft(a)),
        "solve": torch.linalg.solve(a[:64, :64] + 64 * torch.eye(64, device=device), b[:64, :4]),
        "trained": _trained(torch, device),
    }


def _trained(torch, device):
    """Weights after some steps of training."""
    weight = _input(torch, device, 16, 12).requires_grad_()
    x, y = _input(torch, device, 24, 16), _input(torch, device, 24, 12)
    for _ in range(5):
        loss = torch.nn.functional.mse_loss(torch.tanh(x @ weight), y)
        (gradient,) = torch.autograd.grad(loss, weight)
        weight = (weight - 0.5 * gradient).detach().requires_grad_()
    return weight.detach()


def _hash(torch, value):
    return hashlib.sha256(bytes(value.contiguous().cpu().view(torch.uint8).flatten().tolist())).hexdigest()[:32]


def _values(value):
    """The norm and a few elements."""
    flat = value.double().cpu().flatten()
    return [float(flat.norm()), *(float(each) for each in flat[:: max(1, len(flat) // 7)][:8])]
