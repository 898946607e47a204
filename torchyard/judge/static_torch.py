"""Which torch this is, by its files: release, CUDA or CPU build, machine, and the device code for the GPUs."""

from __future__ import annotations

from ..rules.code import ptx_runs, sass_runs
from .static_case import Judged, Reference, failed, passed, skipped, some
from .static_facts import ImageFacts, Library

_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
_LIBRARY = "libtorch_cuda.so"


def machine(ref: Reference, facts: ImageFacts) -> Judged:
    """The configuration and all machine code are for the lock's machine."""
    arch = ref.lock.image.arch
    wrong = [lib for lib in facts.libraries if lib.machine != arch and not _foreign_on_purpose(lib)]
    what = "the machine that this image is for"
    if facts.arch == _NAMES[arch] and not wrong:
        return passed("platform.machine", what, expected=arch, seen=f"{arch} in {len(facts.libraries)} files")
    seen = [] if facts.arch == _NAMES[arch] else [f"the configuration says {facts.arch}"]
    seen += [f"{lib.path} is for {lib.machine}" for lib in wrong]
    return failed(
        "platform.machine",
        what,
        expected=arch,
        seen=some(seen, 4),
        fix=ref.rebuild,
        about=[*(lib.owner for lib in wrong if lib.owner), *(lib.path for lib in wrong)],
        layers=[lib.layer for lib in wrong],
    )


def _foreign_on_purpose(lib: Library) -> bool:
    """Whether a package brings code for other machines, as installers for Windows and emulators' firmware are."""
    return lib.machine not in ("x86_64", "aarch64") and bool(lib.owner)


def kind(ref: Reference, facts: ImageFacts) -> Judged:
    """torch is the build that the lock names: for CPU, or for that CUDA."""
    image = ref.lock.image
    what = "the build of torch: for CPU, or for which CUDA"
    if not facts.torch_version:
        return skipped("torch.build", what, "there is no torch in the environment")
    seen = f"CUDA {facts.torch_cuda}" if facts.torch_cuda else "a CPU build"
    expected = f"CUDA {image.cuda}" if image.cuda else "a CPU build"
    layers = [d.layer for d in facts.distributions if d.name == "torch"]
    gpu_code = any(lib.path.endswith(f"/torch/lib/{_LIBRARY}") for lib in facts.libraries)
    if image.cuda and facts.torch_cuda and not gpu_code:
        lost = [loss for loss in facts.losses if loss.owner == "python torch"]
        if not lost:
            return failed(
                "torch.build",
                what,
                expected=f"{expected}, with {_LIBRARY}",
                seen=f"no {_LIBRARY}: a CPU build",
                fix=ref.rebuild,
                about=["python torch"],
                layers=layers,
            )
    if seen == expected:
        return passed("torch.build", what, expected=expected, seen=f"{seen} ({facts.torch_version})")
    return failed(
        "torch.build",
        f"{what}; this is {'a CPU torch in a CUDA image' if image.cuda and not facts.torch_cuda else 'another build'}",
        expected=expected,
        seen=f"{seen} ({facts.torch_version})",
        fix=ref.rebuild,
        about=["python torch"],
        layers=layers,
    )


def release(ref: Reference, facts: ImageFacts) -> Judged:
    """torch is the locked release."""
    what = "the release of torch"
    expected = ref.lock.image.torch
    layers = [d.layer for d in facts.distributions if d.name == "torch"]
    layers += [loss.layer for loss in facts.losses if loss.owner == "python torch"]
    seen = facts.torch_version.partition("+")[0]
    if seen == expected:
        return passed("torch.release", what, expected=expected, seen=facts.torch_version)
    return failed(
        "torch.release",
        what,
        expected=expected,
        seen=facts.torch_version or "no torch in the environment",
        fix=ref.rebuild,
        about=["python torch"],
        layers=layers,
    )


def code(ref: Reference, facts: ImageFacts) -> list[Judged]:
    """libtorch_cuda, and every extension with device code, has code for every GPU that selects the image."""
    cuda = ref.lock.image.cuda
    if cuda is None:
        return [
            skipped("code.torch", f"device code of {_LIBRARY}", "a CPU image"),
            skipped("code.extensions", "device code of extensions", "a CPU image"),
        ]
    libtorch = [lib for lib in facts.libraries if lib.path.endswith(f"/torch/lib/{_LIBRARY}")]
    others = [lib for lib in facts.libraries if _extension(lib)]
    return [
        _covered("code.torch", f"device code of {_LIBRARY}", libtorch, ref, cuda),
        _covered("code.extensions", "device code of extensions", others, ref, cuda),
    ]


def _extension(lib: Library) -> bool:
    inside = "/site-packages/" in lib.path and "/site-packages/nvidia/" not in lib.path and "/torch/" not in lib.path
    return inside and bool(lib.sass or lib.ptx)


def _covered(rule: str, what: str, libs: list[Library], ref: Reference, cuda: str) -> Judged:
    if not libs:
        return skipped(rule, what, "there is none in this image")
    if not ref.gpus:
        return skipped(rule, what, "no hardware entry selects this image")
    wrong = [(lib, [gpu for gpu in ref.gpus if not runs(lib, gpu[1], cuda, ref)]) for lib in libs]
    wrong = [(lib, gpus) for lib, gpus in wrong if gpus]
    wanted = ", ".join(f"{name} ({cc})" for name, cc in ref.gpus)
    if not wrong:
        have = sorted({f"sm_{t.replace('.', '')}" for lib in libs for t in lib.sass})
        have += sorted({f"PTX {t}" for lib in libs for t in lib.ptx})
        return passed(rule, what, expected=f"runs on {wanted}", seen=" ".join(have))
    told = [
        f"{lib.path.rpartition('/')[2]} has {', '.join(lib.sass) or 'no SASS'} and {_ptx(lib)}:"
        f" nothing for {', '.join(f'{name} ({cc})' for name, cc in gpus)}"
        for lib, gpus in wrong
    ]
    return failed(
        rule,
        what,
        expected=f"runs on {wanted}",
        seen=some(told, 3),
        fix=f"take a build that has code for these cards, then {ref.rebuild}",
        about=[lib.owner or lib.path for lib, _ in wrong],
        layers=[lib.layer for lib, _ in wrong],
    )


def _ptx(lib: Library) -> str:
    return f"PTX for {', '.join(lib.ptx)}" if lib.ptx else "no PTX"


def runs(lib: Library, cc: str, cuda: str, ref: Reference) -> bool:
    """Whether some code of this library runs on a GPU of this compute capability."""
    return any(sass_runs(target, cc, cuda, ref.catalog) for target in lib.sass) or any(
        ptx_runs(target, cc, ref.catalog) for target in lib.ptx
    )
