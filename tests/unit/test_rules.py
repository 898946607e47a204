"""Each rule's floor and ceiling, one line a claim."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from torchyard import catalog, explain, rules
from torchyard.plan import CellState
from torchyard.rules import RULES, Cell, asked
from torchyard.rules.search import solver

C = catalog.load()
OK, REFUSED, UNPROVEN = CellState.OK, CellState.REFUSED, CellState.UNPROVEN

# (rule, request, what the rule says: ok, refused or unproven)
CLAIMS: list[tuple[str, dict[str, Any], CellState]] = [
    # gpu-memory
    ("gpu-memory", {"gpu": "rtx-4090", "memory_gb": 24}, OK),
    ("gpu-memory", {"gpu": "rtx-4090", "memory_gb": 48}, REFUSED),
    ("gpu-memory", {"gpu": "rtx-3080", "memory_gb": 12}, OK),
    ("gpu-memory", {"gpu": "a100", "memory_gb": 80}, OK),
    ("gpu-memory", {"gpu": "a100-sxm4-40gb", "memory_gb": 80}, REFUSED),
    ("gpu-memory", {"gpu": "p4", "memory_gb": 16}, UNPROVEN),
    ("gpu-memory", {"gpu": "b200", "memory_gb": 192}, REFUSED),
    # mig-profile
    ("mig-profile", {"gpu": "a100", "mig": "3g.20gb"}, OK),
    ("mig-profile", {"gpu": "a100", "mig": "3g.40gb"}, REFUSED),
    ("mig-profile", {"gpu": "a100", "memory_gb": 80, "mig": "3g.40gb"}, OK),
    ("mig-profile", {"gpu": "h100", "mig": "1g.10gb+me"}, OK),
    ("mig-profile", {"gpu": "h100-nvl", "mig": "3g.40gb"}, REFUSED),
    ("mig-profile", {"gpu": "rtx-4090", "mig": "1g.5gb"}, REFUSED),
    ("mig-profile", {"gpu": "rtx-pro-6000", "mig": "2g.48gb"}, OK),
    # gpu-host-arch
    ("gpu-host-arch", {"gpu": "gb10", "arch": "x86_64"}, REFUSED),
    ("gpu-host-arch", {"gpu": "jetson-agx-orin", "arch": "x86_64"}, REFUSED),
    ("gpu-host-arch", {"gpu": "h100", "arch": "aarch64"}, OK),
    ("gpu-host-arch", {"gpus": ["gh200", "rtx-4090"]}, REFUSED),
    # known versions
    ("torch-known", {"torch": "2.7.2"}, REFUSED),
    ("torch-known", {"torch": "1.12.1"}, REFUSED),
    ("cuda-known", {"cuda": "12.7"}, REFUSED),
    ("cuda-known", {"cuda": "13.4.0", "build": "source"}, REFUSED),
    ("cuda-known", {"cuda": "13.4.1", "build": "source", "torch": "2.15.0"}, OK),
    ("cuda-known", {"cuda": "11.6", "torch": "1.13.1"}, OK),
    ("cuda-known", {"cuda": "11.6", "torch": "1.13.1", "build": "source"}, REFUSED),
    ("cuda-known", {"cuda": "10.2"}, REFUSED),
    ("cudnn-known", {"cudnn": "9.25.0.15", "build": "source", "cuda": "13.0"}, REFUSED),
    ("cudnn-known", {"cudnn": "9.26.0.33.dev63203437", "build": "source", "cuda": "13.0"}, REFUSED),
    ("cudnn-known", {"cudnn": "9.25.1.1", "build": "source", "cuda": "13.0"}, OK),
    ("cudnn-known", {"cudnn": "8.3.2.44", "torch": "1.13.1", "cuda": "11.6"}, OK),
    # torch-cuda-build
    ("torch-cuda-build", {"torch": "2.14.1", "cuda": "12.8"}, REFUSED),
    ("torch-cuda-build", {"torch": "2.14.1", "cuda": "13.4"}, REFUSED),  # in the wheel's own table, never released
    ("torch-cuda-build", {"torch": "2.15.0", "cuda": "13.4"}, UNPROVEN),
    ("torch-cuda-build", {"torch": "2.15.0", "cuda": "12.6"}, REFUSED),
    ("torch-cuda-build", {"torch": "2.12.0", "cuda": "12.9"}, REFUSED),
    ("torch-cuda-build", {"torch": "2.12.1", "cuda": "12.9"}, OK),
    ("torch-cuda-build", {"torch": "2.9.0", "cuda": "12.9", "arch": "aarch64"}, UNPROVEN),
    ("torch-cuda-build", {"torch": "2.9.1", "cuda": "12.9", "arch": "aarch64"}, OK),
    ("torch-cuda-build", {"torch": "2.3.1", "cuda": "12.1", "arch": "aarch64"}, REFUSED),
    ("torch-cuda-build", {"torch": "2.8.0", "cuda": "12.8.0"}, REFUSED),  # the wheel carries 12.8.1
    ("torch-cuda-build", {"torch": "2.8.0", "cuda": "12.8.1"}, OK),
    # torch-python
    ("torch-python", {"torch": "2.12.0", "python": "3.13t"}, OK),
    ("torch-python", {"torch": "2.12.1", "python": "3.13t"}, REFUSED),
    ("torch-python", {"torch": "2.14.1", "python": "3.14t"}, OK),
    ("torch-python", {"torch": "2.15.0", "python": "3.10"}, REFUSED),
    ("torch-python", {"torch": "2.15.0", "python": "3.15t"}, OK),
    ("torch-python", {"torch": "2.5.1", "python": "3.8"}, REFUSED),  # requires-python says >=3.8
    ("torch-python", {"torch": "2.5.1", "python": "3.13"}, OK),
    ("torch-python", {"torch": "2.5.1", "python": "3.13", "arch": "aarch64"}, REFUSED),
    ("torch-python", {"torch": "1.13.1", "python": "3.11"}, OK),  # though its release matrix says 3.7 to 3.10
    ("torch-python", {"torch": "1.13.1", "python": "3.11", "arch": "aarch64"}, REFUSED),
    ("torch-python", {"torch": "2.14.1", "python": "3.11.7"}, OK),
    ("torch-python", {"torch": "2.13.0", "python": "3.15"}, OK),  # on the PyTorch index only
    ("torch-python", {"torch": "2.13.0", "python": "3.15", "index": "pypi"}, REFUSED),
    ("torch-python", {"torch": "2.15.0", "python": "3.10", "build": "source"}, REFUSED),
    ("torch-python", {"torch": "2.5.1", "python": "3.14", "build": "source"}, UNPROVEN),
    # gpu-code
    ("gpu-code", {"gpu": "gtx-1080", "torch": "2.8.0", "cuda": "12.6"}, OK),  # 6.1 through 6.0
    ("gpu-code", {"gpu": "gtx-1080", "torch": "2.8.0", "cuda": "12.8"}, REFUSED),
    ("gpu-code", {"gpu": "v100", "torch": "2.7.1", "cuda": "12.8"}, REFUSED),
    ("gpu-code", {"gpu": "v100", "torch": "2.8.0", "cuda": "12.8"}, OK),
    ("gpu-code", {"gpu": "v100", "torch": "2.11.0", "cuda": "12.8"}, REFUSED),
    ("gpu-code", {"gpu": "b300", "torch": "2.14.1", "cuda": "13.0"}, OK),  # 10.3 through 10.0
    ("gpu-code", {"gpu": "gb10", "torch": "2.14.1", "cuda": "13.0"}, OK),  # 12.1 through 12.0
    ("gpu-code", {"gpu": "rtx-5090", "torch": "2.10.0", "cuda": "12.6"}, REFUSED),
    ("gpu-code", {"gpu": "a100", "torch": "2.5.1", "cuda": "12.4", "arch": "aarch64"}, REFUSED),  # only 9.0 there
    ("gpu-code", {"gpu": "h100", "torch": "2.5.1", "cuda": "12.4", "arch": "aarch64"}, OK),
    ("gpu-code", {"gpu": "jetson-agx-orin", "torch": "2.14.1", "cuda": "13.0"}, REFUSED),
    ("gpu-code", {"gpu": "jetson-agx-orin", "torch": "2.14.1", "cuda": "13.2"}, OK),  # JetPack 7.2
    ("gpu-code", {"gpu": "jetson-thor", "torch": "2.14.1", "cuda": "13.0"}, OK),
    ("gpu-code", {"gpu": "jetson-thor", "torch": "2.10.0", "cuda": "12.9"}, REFUSED),
    ("gpu-code", {"gpu": "t4", "torch": "2.14.1", "cuda": "13.0"}, OK),
    ("gpu-code", {"gpu": "titan-v", "torch": "2.14.1", "cuda": "13.0"}, UNPROVEN),  # its 7.0 was not read
    ("gpu-code", {"gpu": "t4", "arch": "aarch64", "torch": "2.9.1", "cuda": "12.8"}, UNPROVEN),
    ("gpu-code", {"gpu": "h100", "arch_list": "8.0", "cuda": "12.4"}, REFUSED),
    ("gpu-code", {"gpu": "h100", "arch_list": "8.0+PTX", "cuda": "12.4"}, OK),
    ("gpu-code", {"gpu": "v100", "arch_list": "7.5+PTX", "cuda": "12.4"}, REFUSED),  # PTX goes upward only
    ("gpu-code", {"gpu": "h100", "arch_list": "9.0a", "cuda": "12.4"}, OK),
    ("gpu-code", {"gpu": "b300", "arch_list": "10.0a", "cuda": "13.0"}, REFUSED),  # a runs only where it is from
    ("gpu-code", {"gpu": "b200", "arch_list": "9.0a+PTX", "cuda": "13.0"}, REFUSED),
    ("gpu-code", {"gpus": ["a100", "rtx-5090"], "arch_list": "8.0", "cuda": "13.0"}, REFUSED),
    ("gpu-code", {"gpus": ["a100", "rtx-5090"], "arch_list": "8.0 12.0", "cuda": "13.0"}, OK),
    ("gpu-code", {"gpu": "rtx-4090", "arch_list": "8.7", "cuda": "13.0"}, REFUSED),  # Tegra code runs nowhere else
    # toolkit-emits
    ("toolkit-emits", {"gpu": "a100", "arch_list": "7.0;8.0", "cuda": "13.0"}, REFUSED),
    ("toolkit-emits", {"gpu": "a100", "arch_list": "7.0;8.0", "cuda": "12.9"}, OK),
    ("toolkit-emits", {"gpu": "h100", "arch_list": "9.0a", "cuda": "11.8"}, REFUSED),
    ("toolkit-emits", {"gpu": "h100", "arch_list": "8.0+PTX", "cuda": "11.7"}, UNPROVEN),
    ("toolkit-emits", {"gpu": "rtx-4090", "build": "source", "cuda": "11.7"}, OK),
    ("toolkit-emits", {"gpu": "rtx-5090", "build": "source", "cuda": "12.6"}, REFUSED),
    ("toolkit-emits", {"gpu": "jetson-thor", "build": "source", "cuda": "12.8", "torch": "2.8.0"}, OK),
    # arch-list
    *[("arch-list", {"arch_list": bad}, REFUSED)
      for bad in ("cpu", "", "sm_86", "86", "8.6 PTX", "8,6", "compute_89", "10.0f", "8.6+ptx",
                  "8.8", "9.9", ";", "8.6;x")],
    *[("arch-list", {"arch_list": good, "torch": "2.14.1", "cuda": "13.0"}, OK)
      for good in ("8.6", "8.0;8.6+PTX", "9.0a", "9.0a+PTX", "8.0 8.6", "Hopper", "Ampere;9.0", "12.0a", "8.6;")],
    ("arch-list", {"arch_list": "10.7", "torch": "2.14.1", "cuda": "13.4"}, OK),
    ("arch-list", {"arch_list": "10.7", "torch": "2.13.0", "cuda": "13.4"}, REFUSED),
    # driver-cuda
    ("driver-cuda", {"driver": "525.60.11", "cuda": "12.8"}, REFUSED),
    ("driver-cuda", {"driver": "525.60.13", "cuda": "12.8"}, OK),
    ("driver-cuda", {"driver": "551.78", "cuda": "12.8"}, OK),  # minor-version compatibility
    ("driver-cuda", {"driver": "470.82", "cuda": "12.4"}, REFUSED),
    ("driver-cuda", {"driver": "450.80.02", "cuda": "11.8"}, OK),
    ("driver-cuda", {"driver": "450.80.01", "cuda": "11.8"}, REFUSED),
    ("driver-cuda", {"driver": "580", "cuda": "13.2"}, OK),
    ("driver-cuda", {"driver": "r580", "cuda": "13.2"}, OK),
    ("driver-cuda", {"driver": "620.10", "cuda": "11.7"}, OK),
    ("driver-cuda", {"gpu": "a100", "driver": "535.54.03", "cuda": "13.0", "cuda_compat": True}, OK),
    ("driver-cuda", {"gpu": "a100", "driver": "545.23.06", "cuda": "13.0", "cuda_compat": True}, UNPROVEN),
    ("driver-cuda", {"gpu": "a100", "driver": "470.82", "cuda": "13.0", "cuda_compat": True}, UNPROVEN),
    # driver-ptx
    ("driver-ptx", {"gpu": "h100", "arch_list": "8.0+PTX", "cuda": "12.4", "driver": "545.23.06"}, REFUSED),
    ("driver-ptx", {"gpu": "h100", "arch_list": "8.0+PTX", "cuda": "12.4", "driver": "550.54.14"}, OK),
    ("driver-ptx", {"gpu": "h100", "arch_list": "9.0+PTX", "cuda": "12.4", "driver": "525.60.13"}, OK),
    ("driver-ptx", {"gpu": "a100", "torch": "2.9.0", "cuda": "13.0", "driver": "580.65.06"}, OK),
    ("driver-ptx", {"gpu": "h100", "arch_list": "8.0+PTX", "cuda": "12.4", "driver": "535", "cuda_compat": True}, OK),
    # driver-gpu
    ("driver-gpu", {"gpu": "rtx-5090", "driver": "565.57.01"}, REFUSED),
    ("driver-gpu", {"gpu": "rtx-5090", "driver": "570.26"}, OK),
    ("driver-gpu", {"gpu": "rtx-5090", "driver": "570.124.06"}, OK),
    ("driver-gpu", {"gpu": "p100", "driver": "580.95.05"}, OK),
    ("driver-gpu", {"gpu": "p100", "driver": "590.44.01"}, REFUSED),
    ("driver-gpu", {"gpu": "v100", "driver": "595.45.04"}, REFUSED),
    ("driver-gpu", {"gpu": "t4", "driver": "620.10"}, OK),
    # forward-compat
    ("forward-compat", {"gpu": "a100", "cuda_compat": True}, OK),
    ("forward-compat", {"gpu": "rtx-3090", "cuda_compat": True}, REFUSED),
    ("forward-compat", {"gpu": "rtx-a6000", "cuda_compat": True}, UNPROVEN),
    ("forward-compat", {"gpu": "jetson-agx-orin", "cuda_compat": True}, OK),
    ("forward-compat", {"gpu": "rtx-3090", "cuda_compat": False}, OK),
    # cudnn-gpu, cudnn-cuda, cudnn-pin
    ("cudnn-gpu", {"gpu": "v100", "build": "source", "cuda": "12.8", "cudnn": "9.10.2.21"}, OK),
    ("cudnn-gpu", {"gpu": "v100", "build": "source", "cuda": "12.8", "cudnn": "9.12.0.46"}, REFUSED),
    ("cudnn-gpu", {"gpu": "v100", "build": "source", "cuda": "12.8", "cudnn": "9.11.0.98"}, UNPROVEN),
    ("cudnn-gpu", {"gpu": "b200", "build": "source", "cuda": "12.8", "cudnn": "9.7.1.26"}, OK),
    ("cudnn-gpu", {"gpu": "b200", "build": "source", "cuda": "12.8", "cudnn": "9.6.0.74"}, REFUSED),
    ("cudnn-gpu", {"gpu": "h100", "torch": "2.0.1", "cuda": "11.7"}, UNPROVEN),
    ("cudnn-cuda", {"build": "source", "cuda": "13.0", "cudnn": "9.10.2.21"}, REFUSED),
    ("cudnn-cuda", {"build": "source", "cuda": "13.0", "cudnn": "9.12.0.46"}, OK),
    ("cudnn-cuda", {"build": "source", "cuda": "11.8", "cudnn": "9.12.0.46"}, REFUSED),
    ("cudnn-cuda", {"build": "source", "cuda": "12.9", "cudnn": "9.28.1.4"}, REFUSED),  # only for CUDA 13
    ("cudnn-cuda", {"build": "source", "cuda": "11.8", "cudnn": "9.1.0.70", "arch": "aarch64"}, REFUSED),
    ("cudnn-cuda", {"build": "source", "cuda": "12.4", "cudnn": "8.9.7.29", "arch": "aarch64"}, REFUSED),
    ("cudnn-cuda", {"cuda": "cpu", "cudnn": "9.1.0.70"}, REFUSED),
    ("cudnn-pin", {"torch": "2.14.1", "cuda": "13.0", "cudnn": "9.24"}, OK),
    ("cudnn-pin", {"torch": "2.14.1", "cuda": "13.0", "cudnn": "9.24.1.1"}, REFUSED),
    ("cudnn-pin", {"torch": "2.11.0", "cuda": "13.0", "cudnn": "9.17.1.4"}, REFUSED),  # RELEASE.md says it is
    ("cudnn-pin", {"torch": "2.15.0", "cuda": "13.0", "cudnn": "9.26.0.51"}, UNPROVEN),
    ("cudnn-pin", {"torch": "2.12.1", "cuda": "12.9", "cudnn": "9.19.0.56"}, REFUSED),
    ("cudnn-pin", {"torch": "2.12.1", "cuda": "12.9", "cudnn": "9.19.0.56", "arch": "aarch64"}, UNPROVEN),
    ("cudnn-pin", {"torch": "2.14.1", "cuda": "13.0", "cudnn": "9.20.0.48", "build": "source"}, OK),
    # glibc
    ("glibc", {"os": "alpine-3"}, REFUSED),
    ("glibc", {"os": "alpine-3", "build": "source"}, REFUSED),
    ("glibc", {"os": "centos-7", "torch": "2.6.0", "cuda": "12.4"}, OK),  # 2.17, not the 2.5 of the file's tag
    ("glibc", {"os": "centos-7", "torch": "2.6.0", "cuda": "12.6"}, REFUSED),
    ("glibc", {"os": "centos-7", "torch": "2.6.0", "arch": "aarch64", "cuda": "cpu"}, REFUSED),
    ("glibc", {"os": "ubuntu-18.04", "torch": "2.7.0"}, REFUSED),
    ("glibc", {"os": "rocky-8", "torch": "2.15.0"}, OK),
    ("glibc", {"os": "amazonlinux-2", "torch": "2.7.0"}, REFUSED),
    # nvcc-gcc, nvcc-glibc, torch-gcc, torch-cuda-floor
    ("nvcc-gcc", {"gcc": "14", "cuda": "12.6"}, REFUSED),
    ("nvcc-gcc", {"gcc": "13.3", "cuda": "12.6"}, OK),
    ("nvcc-gcc", {"gcc": "13", "cuda": "12.3"}, REFUSED),  # torch's own table would let it pass
    ("nvcc-gcc", {"gcc": "11.4", "cuda": "11.7"}, OK),
    ("nvcc-gcc", {"gcc": "16", "cuda": "13.3"}, REFUSED),
    ("nvcc-gcc", {"gcc": "16", "cuda": "13.4"}, OK),
    ("nvcc-gcc", {"gcc": "16", "cuda": "cpu"}, OK),
    ("nvcc-glibc", {"os": "debian-13", "build": "source", "cuda": "12.9"}, REFUSED),
    ("nvcc-glibc", {"os": "debian-13", "build": "source", "cuda": "13.0"}, OK),
    ("nvcc-glibc", {"os": "ubuntu-26.04", "build": "source", "cuda": "13.1"}, REFUSED),
    ("nvcc-glibc", {"os": "ubuntu-26.04", "build": "source", "cuda": "13.2"}, OK),
    ("nvcc-glibc", {"os": "ubuntu-24.04", "build": "source", "cuda": "12.1"}, OK),
    ("nvcc-glibc", {"os": "ubuntu-26.04", "build": "wheel", "cuda": "12.6"}, OK),
    ("torch-gcc", {"torch": "2.5.1", "gcc": "8.5"}, REFUSED),
    ("torch-gcc", {"torch": "2.5.1", "gcc": "9.3"}, OK),
    ("torch-gcc", {"torch": "2.14.1", "gcc": "11.2"}, UNPROVEN),
    ("torch-gcc", {"torch": "2.14.1", "gcc": "11.3"}, OK),
    ("torch-cuda-floor", {"torch": "2.14.1", "cuda": "12.4", "build": "source"}, REFUSED),
    ("torch-cuda-floor", {"torch": "2.14.1", "cuda": "12.6", "build": "source"}, OK),
    ("torch-cuda-floor", {"torch": "2.13.0", "cuda": "12.1", "build": "source"}, OK),
    ("torch-cuda-floor", {"torch": "2.13.0", "cuda": "12.0", "build": "source"}, REFUSED),
    ("torch-cuda-floor", {"torch": "2.15.0", "cuda": "12.6", "build": "source"}, OK),
    ("torch-cuda-floor", {"torch": "2.10.0", "cuda": "11.8", "build": "source"}, REFUSED),
    ("torch-cuda-floor", {"torch": "2.0.1", "cuda": "13.0", "build": "source"}, UNPROVEN),
    # blas
    ("blas", {"blas": "openblas", "torch": "2.14.1"}, REFUSED),
    ("blas", {"blas": "openblas", "torch": "2.14.1", "build": "source"}, OK),
    ("blas", {"blas": "mkl", "torch": "2.14.1"}, OK),
    ("blas", {"blas": "nvpl", "torch": "2.14.1", "arch": "aarch64"}, OK),
    ("blas", {"blas": "openblas", "torch": "2.14.1", "arch": "aarch64", "cuda": "13.0"}, REFUSED),
    ("blas", {"blas": "openblas", "torch": "2.14.1", "arch": "aarch64", "cuda": "cpu"}, OK),
    ("blas", {"blas": "nvpl", "arch": "x86_64", "build": "source"}, UNPROVEN),
    # distro-python
    ("distro-python", {"os": "debian-12", "python": "3.11", "python_from": "distribution"}, OK),
    ("distro-python", {"os": "debian-12", "python": "3.12", "python_from": "distribution"}, REFUSED),
    ("distro-python", {"os": "debian-12", "python": "3.12", "python_from": "standalone"}, OK),
    ("distro-python", {"os": "debian-12", "python": "3.12"}, OK),
    ("distro-python", {"os": "ubuntu-22.04", "python": "3.11", "python_from": "distribution"}, REFUSED),  # rc only
    ("distro-python", {"os": "ubuntu-26.04", "python": "3.14t", "python_from": "distribution"}, REFUSED),
    ("distro-python", {"os": "rocky-9", "python": "3.13", "python_from": "distribution"}, UNPROVEN),
    # precision
    ("precision", {"gpu": "t4", "precision": "bf16"}, REFUSED),  # emulated only
    ("precision", {"gpu": "t4", "precision": "fp16"}, OK),
    ("precision", {"gpu": "p100", "precision": "fp16"}, REFUSED),
    ("precision", {"gpu": "gtx-1660", "precision": "fp16"}, REFUSED),  # Turing without tensor cores
    ("precision", {"gpu": "a100", "precision": "fp8"}, REFUSED),
    ("precision", {"gpu": "l4", "precision": "fp8"}, OK),
    ("precision", {"gpu": "h100", "precision": "fp4"}, REFUSED),
    ("precision", {"gpu": "b200", "precision": "fp4"}, OK),
    ("precision", {"gpu": "v100", "precision": "tf32"}, REFUSED),
    ("precision", {"gpu": "p100", "precision": "fp32"}, OK),
    ("precision", {"gpus": ["a100", "v100"], "precision": "bf16"}, REFUSED),
    # triton
    ("triton", {"gpu": "p100", "features": ["compile"]}, REFUSED),
    ("triton", {"gpu": "v100", "features": ["compile"]}, OK),
    ("triton", {"torch": "2.2.0", "python": "3.12", "features": ["compile"]}, REFUSED),
    ("triton", {"torch": "2.4.0", "python": "3.12", "features": ["compile"]}, OK),
    ("triton", {"torch": "2.5.1", "python": "3.13", "features": ["compile"]}, REFUSED),
    ("triton", {"torch": "2.14.1", "python": "3.14t", "features": ["compile"]}, OK),
    ("triton", {"torch": "2.13.0", "python": "3.15", "features": ["compile"]}, REFUSED),
    ("triton", {"torch": "1.13.1", "features": ["compile"]}, REFUSED),
    ("triton", {"gpu": "gh200", "torch": "2.8.0", "features": ["compile"]}, REFUSED),  # aarch64 triton from 3.5.0
    ("triton", {"gpu": "gh200", "torch": "2.9.0", "features": ["compile"]}, OK),
    ("triton", {"cuda": "cpu", "torch": "2.5.1", "python": "3.13", "features": ["compile"]}, OK),
    # pair
    ("pair", {"torch": "2.14.1", "packages": {"torchvision": "0.29.1"}}, OK),
    ("pair", {"torch": "2.15.0", "packages": {"torchvision": "0.29.1"}}, REFUSED),
    ("pair", {"torch": "2.14.1", "packages": {"torchvision": "0.28.0"}}, REFUSED),
    ("pair", {"torch": "2.14.1", "cuda": "13.0", "packages": {"torchvision": "0.29.1+cu126"}}, REFUSED),
    ("pair", {"torch": "2.14.1", "packages": {"torchaudio": "2.11.0"}}, OK),
    ("pair", {"torch": "2.14.1", "packages": {"torchaudio": "2.11.1"}}, OK),
    ("pair", {"torch": "2.14.1", "packages": {"torchaudio": "2.9.1"}}, REFUSED),
    ("pair", {"torch": "2.14.1", "packages": {"torchaudio": "2.14.1"}}, UNPROVEN),
    ("pair", {"torch": "2.0.0", "packages": {"torchvision": "0.15.0"}}, REFUSED),  # withdrawn
    ("pair", {"torch": "2.0.0", "packages": {"torchvision": "0.15.1", "torchaudio": "2.0.1"}}, OK),
    ("pair", {"torch": "2.5.1", "python": "3.13", "packages": {"torchvision": "0.20.1"}}, REFUSED),
    ("pair", {"torch": "2.5.1", "python": "3.13", "packages": {"torchaudio": "2.5.1"}}, REFUSED),
    ("pair", {"torch": "2.14.1", "python": "3.14.1", "packages": {"torchvision": "0.29.1"}}, REFUSED),
    ("pair", {"torch": "2.15.0", "python": "3.15t", "packages": {"torchvision": "0.29.2"}}, OK),
    ("pair", {"torch": "2.14.1", "packages": {"triton": "3.7.1"}}, REFUSED),
    ("pair", {"torch": "2.14.1", "packages": {"numpy": "2.1.0"}}, OK),
    # compression
    ("compression", {"compression": "gzip", "consumers": ["enroot"]}, OK),
    ("compression", {"compression": "zstd"}, OK),  # no site says what reads it
    ("compression", {"compression": "zstd", "consumers": ["docker"]}, OK),
    ("compression", {"compression": "zstd", "consumers": ["docker 20.10.24"]}, REFUSED),
    ("compression", {"compression": "zstd", "consumers": ["podman 1.6.2"]}, OK),
    ("compression", {"compression": "zstd", "consumers": ["podman 1.6.1"]}, REFUSED),
    ("compression", {"compression": "zstd", "consumers": ["enroot", "apptainer"]}, REFUSED),
    ("compression", {"compression": "zstd", "consumers": ["enroot 3.5.0"]}, REFUSED),
    ("compression", {"compression": "zstd", "consumers": ["enroot 4.1.2"]}, OK),
    ("compression", {"compression": "zstd", "consumers": ["apptainer 1.4.5"]}, OK),
    ("compression", {"compression": "zstd", "consumers": ["singularity 4.1"]}, UNPROVEN),
    ("compression", {"compression": "zstd", "consumers": ["singularity 4.1", "enroot 3.4"]}, REFUSED),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "request_", "says"),
    CLAIMS,
    ids=[f"{r}-{'-'.join(f'{k}={v}' for k, v in q.items())}" for r, q, _ in CLAIMS],
)
def test_a_rule_says(rule: str, request_: dict[str, Any], says: CellState) -> None:
    done = explain.complete(rules.parse_request(request_), C, nearest=False, runners_up=False)
    verdict = next(v for v in done.verdicts if v.rule == rule)
    state = OK if verdict.ok else UNPROVEN if verdict.unproven else REFUSED
    assert state is says, verdict.what
    assert verdict.what and verdict.source


def test_every_rule_has_claims_on_both_sides() -> None:
    by_rule: dict[str, set[CellState]] = {}
    for rule, _, says in CLAIMS:
        by_rule.setdefault(rule, set()).add(says)
    both = {rule for rule, said in by_rule.items() if OK in said and REFUSED in said}
    # An unknown GPU is an input error, and torch-known passes whenever a release is known.
    assert {r.id for r in RULES} - both == {"gpu-known", "torch-known"}


class _Watched:
    """A cell that remembers which of its keys were read."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self._cell, name)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_a_rule_reads_only_the_keys_that_it_says(rule: rules.Rule) -> None:
    """The search remembers answers by those keys: a rule that read another would get a stale answer."""
    names = {f.name for f in fields(Cell)}
    assert set(rule.reads) <= names
    for _, request, _ in CLAIMS:
        watched = _Watched(solver(C).closest(asked(rules.parse_request(request), C)))
        rule.judge(watched, C)  # type: ignore[arg-type]
        assert watched.read <= set(rule.reads), rule.id


@pytest.mark.parametrize("rule", [r for r in RULES if r.only_with or r.only_build], ids=lambda r: r.id)
def test_what_the_search_does_not_ask_holds(rule: rules.Rule) -> None:
    for _, request, _ in CLAIMS:
        wanted = asked(rules.parse_request(request), C)
        cell = solver(C).closest(wanted)
        silent = rule.only_with and getattr(wanted, rule.only_with) in (None, (), False)
        other = rule.only_build and cell.build != rule.only_build
        if silent or (other and not (rule.never and rule.never(cell, C))):
            assert rule.judge(cell, C).ok, (rule.id, request)


def test_a_rule_says_of_an_unverified_row_that_it_is_unproven_and_of_a_read_one_that_it_is_refused() -> None:
    """Reading the row of TITAN V, in a user's catalog.d, turns the doubt into a refusal."""
    text = "gpus:\n- {id: titan-v, cc: '7.0', source: [read on the card], checked: '2027-01-01'}\n"
    mine = catalog.load([("catalog.d/titan.yaml", text)])
    request = rules.parse_request({"gpu": "titan-v", "torch": "2.14.1", "cuda": "13.0"})
    assert explain.complete(request, C).state is UNPROVEN
    assert explain.complete(request, mine).state is REFUSED
