"""The catalogue as pages: which CUDA line serves which GPU with which torch, and a page for each rule. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from torchyard import explain, source
from torchyard.catalog import Catalog, Gpu, Release
from torchyard.catalog.rows import Row, RuleRow
from torchyard.plan import CellState
from torchyard.rules import RULES, Request
from torchyard.versions import numbers

GRID = PurePosixPath("docs/compatibility.md")
RULE_PAGES = PurePosixPath("docs/rules")
SWITCHES = PurePosixPath("docs/switches.md")
_MADE = "<!-- Made from torchyard/data/catalog by `catalog docs`; do not edit by hand. -->"

# The rows that each rule compares with, shown on its page: section, and the fields to show.
_SHOWN: Mapping[str, Sequence[tuple[str, tuple[str, ...]]]] = {
    "gpu-known": [("gpus", ("id", "name", "arch", "cc"))],
    "gpu-memory": [("gpus", ("id", "memory_gb"))],
    "mig-profile": [("gpus", ("id", "mig"))],
    "gpu-host-arch": [("gpus", ("id", "host"))],
    "torch-known": [("torch_releases", ("version", "released"))],
    "cuda-known": [("toolkits", ("version", "released", "patches")), ("wheel_only", ("version", "note"))],
    "cudnn-known": [("cudnn_packages", ("package", "all", "withdrawn"))],
    "torch-cuda-build": [
        ("torch_releases", ("version", "cuda", "pypi")),
        ("torch_ends", ("first", "cuda_below", "why")),
    ],
    "torch-python": [
        ("torch_releases", ("version", "requires_python", "python")),
        ("torch_index_pythons", ("torch", "python", "note")),
    ],
    "gpu-code": [
        ("torch_builds", ("torch", "tag", "arch", "sass", "ptx")),
        ("code_exclusive", ("cc",)),
        ("code_serves", ("code", "gpu", "cuda_min", "note")),
        ("code_same", ("names", "note")),
    ],
    "toolkit-emits": [("toolkits", ("version", "targets"))],
    "arch-list": [("arch_entries", ("entries", "first", "to")), ("arch_names", ("name", "entries", "first"))],
    "driver-cuda": [("driver_floors", ("major", "min_driver")), ("forward_bases", ("major", "min_branch", "kinds"))],
    "driver-ptx": [("driver_branches", ("branch", "max_cuda", "kind", "end_of_life"))],
    "driver-gpu": [
        ("driver_gpus", ("arch", "min_driver", "last_branch")),
        ("kernel_modules", ("arch", "gpu", "modules")),
    ],
    "forward-compat": [("forward_compatibility", ("kind", "allowed", "note"))],
    "cudnn-gpu": [("cudnn_lines", ("first", "to", "cc_min", "cc_max", "cuda_for_max", "cc_max_below"))],
    "cudnn-cuda": [("cudnn_lines", ("first", "to", "cuda")), ("cudnn_packages", ("package", "aarch64_from"))],
    "cudnn-pin": [("torch_builds", ("torch", "tag", "arch", "cudnn"))],
    "glibc": [("distributions", ("os", "glibc")), ("torch_builds", ("torch", "tag", "arch", "glibc_min"))],
    "nvcc-gcc": [("toolkits", ("version", "max_gcc")), ("distributions", ("os", "gcc", "more_gcc"))],
    "nvcc-glibc": [("toolkits", ("version", "max_glibc")), ("distributions", ("os", "glibc"))],
    "torch-gcc": [("torch_releases", ("version", "source_build"))],
    "torch-cuda-floor": [("torch_releases", ("version", "source_build"))],
    "blas": [
        ("blas_wheels", ("arch", "kinds", "torch_from", "torch_to", "blas")),
        ("blas_libraries", ("blas", "arch")),
    ],
    "distro-python": [("distributions", ("os", "python", "more_python", "not_python"))],
    "precision": [("gpus", ("id", "cc", "precision"))],
    "triton": [
        ("compile_floors", ("feature", "cc")),
        ("triton_wheels", ("arch", "first")),
        ("torch_releases", ("version", "triton", "triton_python_max")),
    ],
    "pair": [
        ("pairs", ("torch", "torchvision", "torchaudio", "torchvision_python")),
        ("pair_withdrawn", ("package", "version")),
        ("pair_python", ("package", "first", "python")),
    ],
    "compression": [("consumers", ("consumer", "zstd", "granted", "note"))],
}


def pages(catalog: Catalog) -> dict[PurePosixPath, str]:
    """Every page, by its path in the repository."""
    made = {GRID: _grid_page(catalog), SWITCHES: _switches_page(catalog)}
    for row in catalog.rules():
        made[RULE_PAGES / f"{row.id}.md"] = _rule_page(row, catalog)
    return made


def lines(catalog: Catalog) -> tuple[Release, ...]:
    """The newest patch of each torch line, oldest first."""
    newest: dict[tuple[int, ...], Release] = {}
    for release in catalog.releases:
        newest.setdefault(numbers(release.version)[:2], release)
    return tuple(reversed(newest.values()))


def served(gpu: Gpu, release: Release, catalog: Catalog) -> str:
    """The CUDA line that a GPU gets with a torch release, `?` behind it where it is unproven; `-` for none."""
    done = explain.complete(Request(gpu=gpu.id, torch=release.version), catalog, nearest=False, runners_up=False)
    if done.state is CellState.REFUSED or done.choice.cuda is None:
        return "-"
    return done.choice.cuda + ("?" if done.state is CellState.UNPROVEN else "")


def _grid_page(catalog: Catalog) -> str:
    releases = lines(catalog)
    head = ["GPU", "cc", *(r.version for r in releases)]
    body = [[g.id, g.cc, *(served(g, r, catalog) for r in releases)] for g in catalog.gpus]
    return "\n".join(
        [
            _MADE,
            "# What works with what",
            "",
            f"The catalogue of {catalog.date}: {len(catalog.gpus)} GPUs, {len(catalog.releases)} torch releases, "
            f"{len(catalog.toolkits)} CUDA toolkits, {len(catalog.distributions)} distributions.",
            "",
            "Each cell is the CUDA line of the wheel that `cuda: auto` takes: the release's default build where it has",
            "code for the GPU, else the newest line that has. `-`: no wheel of that release runs on the GPU; `?`: only",
            "a row that nobody has verified stands against it. GPUs that sit in Arm hosts only get aarch64 wheels.",
            "`explain --gpu NAME --torch VERSION` says why, and what to change.",
            "",
            *_table(head, body),
            "",
            "## Rules",
            "",
            *(f"- [{row.id}](rules/{row.id}.md): {row.statement}" for row in catalog.rules()),
            "",
            "## Where documents and files disagree",
            "",
            *(f"- {d.says}; but: {d.but} ({d.cited})" for d in catalog.disagreements()),
            "",
        ]
    )


def _rule_page(row: RuleRow, catalog: Catalog) -> str:
    rule = next(r for r in RULES if r.id == row.id)
    shown = [part for section, names in _SHOWN[row.id] for part in _section(section, names, catalog)]
    return "\n".join(
        [
            _MADE,
            f"# {row.id}",
            "",
            f"**{row.statement[0].upper()}{row.statement[1:]}.**",
            "",
            f"It reads: {', '.join(f'`{key}`' for key in rule.reads)}. In code: {(rule.judge.__doc__ or '').strip()}",
            "",
            "Source:",
            "",
            *(f"- `{source}`: {catalog.sources.get(source, source)}" for source in row.source),
            "",
            *shown,
            "[All rules and the grid](../compatibility.md)",
            "",
        ]
    )


def _switches_page(catalog: Catalog) -> str:
    """Every switch of a PyTorch build: its type, its default, its meaning, and where env.yaml says it."""
    body = [
        [f"`{row.name}`", row.type, row.default or "-", row.meaning, source.said_by(row.name), row.cited, _doubt(row)]
        for row in catalog.switches()
    ]
    text = [
        _MADE,
        "# The switches of a PyTorch build",
        "",
        "What `source.flags` of env.yaml may hold; source.md says what is refused together. One that is missing here",
        "is added in `catalog.d/*.yaml`, under `switches`.",
        "",
        *_table(["switch", "type", "default", "meaning", "in env.yaml", "source", "unverified"], body),
    ]
    return "\n".join(text) + "\n"


def _section(section: str, names: Sequence[str], catalog: Catalog) -> list[str]:
    listed = catalog.rows[section]
    head = [*names, "source", "unverified"]
    body = [[*(_shown(getattr(row, name)) for name in names), row.cited, _doubt(row)] for row in listed]
    return [f"## {section}", "", *_table(head, body), ""]


def _doubt(row: Row) -> str:
    return "the whole row" if not row.verified else ", ".join(row.unverified)


def _shown(value: object) -> str:
    match value:
        case None:
            return "none known"
        case tuple():
            return " ".join(str(v) for v in value)
        case dict():
            return "; ".join(f"{key}: {_shown(v)}" for key, v in value.items())
        case _:
            return str(value)


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    rows = [head, ["---"] * len(head), *body]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


__all__ = ["GRID", "RULE_PAGES", "lines", "pages", "served"]
