"""How far matrix products, factorisations, Fourier transforms and convolutions are from float64 done by hand."""

from . import far


def facts(device):
    """The relative error of each operation by its type; the references use no BLAS, LAPACK or FFT library."""
    import torch

    torch.manual_seed(7)
    seen = {}
    for name, dtype in (("float32", torch.float32), ("float64", torch.float64)):
        seen["gemm." + name] = _gemm(torch, dtype, device)
        seen["solve." + name] = _solve(torch, dtype, device)
        seen["eigen." + name] = _eigen(torch, dtype, device)
        seen["svd." + name] = _svd(torch, dtype, device)
        seen["fft." + name] = _fft(torch, dtype, device)
        seen["convolution." + name] = _convolution(torch, dtype, device)
    return {"errors": seen}


def _gemm(torch, dtype, device):
    a, b = torch.randn(96, 80, dtype=torch.float64), torch.randn(80, 64, dtype=torch.float64)
    a, b = a.to(dtype).double(), b.to(dtype).double()
    by_hand = (a[:, :, None] * b[None]).sum(1)
    return far(a.to(device, dtype) @ b.to(device, dtype), by_hand)


def _well(torch):
    return torch.randn(48, 48, dtype=torch.float64) + 48 * torch.eye(48, dtype=torch.float64)


def _product(a, b):
    return (a[:, :, None] * b[None]).sum(1)


def _solve(torch, dtype, device):
    a = _well(torch).to(dtype)
    b = torch.randn(48, 4, dtype=torch.float64).to(dtype)
    x = torch.linalg.solve(a.to(device), b.to(device)).cpu()
    return far(_product(a.double(), x.double()), b.double())


def _eigen(torch, dtype, device):
    a = _well(torch).to(dtype)
    a = (a + a.T) / 2
    values, vectors = (each.double().cpu() for each in torch.linalg.eigh(a.to(device)))
    return far(_product(vectors * values, vectors.T), a.double())


def _svd(torch, dtype, device):
    a = torch.randn(40, 24, dtype=torch.float64).to(dtype)
    u, s, v = (each.double().cpu() for each in torch.linalg.svd(a.to(device), full_matrices=False))
    return far(_product(u * s, v), a.double())


def _fft(torch, dtype, device):
    x = torch.randn(90, dtype=torch.float64).to(dtype)
    turns = torch.outer(torch.arange(90), torch.arange(90)).remainder(90).double() * (-2 * torch.pi / 90)
    real, imaginary = (x.double() * turns.cos()).sum(1), (x.double() * turns.sin()).sum(1)
    seen = torch.fft.fft(x.to(device)).cpu()
    return max(far(seen.real, real), far(seen.imag, imaginary), key=_worst)


def _worst(value):
    return float("inf") if isinstance(value, str) else value


def _convolution(torch, dtype, device):
    x = torch.randn(2, 3, 12, 12, dtype=torch.float64).to(dtype)
    w = torch.randn(5, 3, 3, 3, dtype=torch.float64).to(dtype)
    by_hand = torch.zeros(2, 5, 10, 10, dtype=torch.float64)
    for row in range(3):
        for column in range(3):
            window = x.double()[:, None, :, row : row + 10, column : column + 10]
            by_hand += (window * w.double()[None, :, :, row, column, None, None]).sum(2)
    tf32 = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        return far(torch.nn.functional.conv2d(x.to(device), w.to(device)), by_hand)
    finally:
        torch.backends.cudnn.allow_tf32 = tf32
