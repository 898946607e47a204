"""`catalog`: read a wheel into rows, propose rows from what indexes offer, write the pages about the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from torchyard import catalog, compatibility, inspection, proposals
from torchyard.finding import Finding, State
from torchyard.inspection import Inside
from torchyard.world import catalog_files, offers, wheel_inside


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspected:
    """What `catalog inspect` saw: the facts, the rows as text, and whether the catalogue agrees."""

    inside: Inside
    rows: str
    findings: tuple[Finding, ...]
    gaps: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether nothing that the catalogue says of this wheel is wrong."""
        return all(finding.state is not State.FAIL for finding in self.findings)


def inspect(root: Path, wheel: str, *, today: date | None = None) -> Inspected:
    """The rows that a wheel proves, and whether the catalogue agrees with it."""
    known = catalog.load(catalog_files.texts(root))
    inside = wheel_inside.read(Path(wheel))
    checked = (today or date.today()).isoformat()
    return Inspected(
        inside=inside,
        rows=inspection.as_yaml(inspection.rows(inside, known, checked=checked)),
        findings=inspection.against(inside, known),
        gaps=inspection.gaps(inside.code),
    )


def write(root: Path, name: str, text: str) -> Path:
    """Put rows into `catalog.d/NAME.yaml`, where every later command reads them."""
    return catalog_files.write(root, name, text)


def told(seen: Inspected) -> str:
    """An inspection as text: what is inside, whether the catalogue agrees, and the rows."""
    inside = seen.inside
    lines = [
        f"{inside.name} {inside.version}: CUDA {inside.cuda or 'none'}, Python {inspection.python_of(inside.tags)}, "
        f"{inspection.arch_of(inside.tags)}, glibc {inspection.glibc_of(inside.tags) or 'any'}"
        f" (symbols up to {inside.glibc or 'none'})"
    ]
    lines += [f"  pins      {name} {version}" for name, version in sorted(inside.pins.items())]
    for code in inside.code:
        sass = " ".join(f"{target}x{count}" for target, count in code.sass)
        ptx = " ".join(f"{target}x{count}" for target, count in code.ptx)
        lines.append(f"  code      {code.library}: SASS {sass or 'none'}; PTX {ptx or 'none'}")
    lines += [f"  lacks     {gap}" for gap in seen.gaps]
    for finding in seen.findings:
        if finding.state is State.SKIPPED:
            lines.append(f"  skipped   {finding.because}")
        elif finding.state is State.FAIL:
            lines.append(f"  differs   {finding.what}: the catalogue says {finding.expected}, the wheel {finding.seen}")
        else:
            lines.append(f"  agrees    {finding.what}: {finding.seen or 'none'}")
    return "\n".join([*lines, *([seen.rows] if seen.rows else ["the catalogue needs no row for it"])])


def docs(root: Path, *, check: bool = False) -> tuple[str, ...]:
    """Write docs/compatibility.md and a page for each rule; with `check`, only name the pages that differ."""
    changed: list[str] = []
    for path, text in compatibility.pages(catalog.load()).items():
        target = root / path
        if not target.is_file() or target.read_text(encoding="utf-8") != text:
            changed.append(str(path))
            if not check:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
    return tuple(changed)


def refresh(root: Path, *, today: date | None = None) -> str:
    """What the user's indexes offer that the catalogue does not say, as a diff of `catalog.d/refresh.yaml`."""
    known = catalog.load(catalog_files.texts(root))
    offered = offers.offered(lambda plain: proposals.unknown(plain, known))
    checked = (today or date.today()).isoformat()
    rows = proposals.propose(offered, known, checked=checked, source="release metadata of the package index")
    old = dict(catalog_files.texts(root)).get("catalog.d/refresh.yaml", "")
    return proposals.diff(old, rows, name="catalog.d/refresh.yaml")
