"""What `catalog refresh` proposes from release metadata, and the pages that are made from the catalogue."""

from __future__ import annotations

from pathlib import Path

from torchyard import catalog, compatibility, proposals
from torchyard.proposals import Offered

ROOT = Path(__file__).parents[2]
C = catalog.load()
REQUIRES = (
    'cuda-toolkit[cublas]==13.4.1; platform_system == "Linux"',
    'nvidia-cudnn-cu13==9.28.0.42; platform_system == "Linux"',
    'triton~=4.0.0; platform_system == "Linux" and python_version < "3.17"',
    "filelock",
)


def offered(project: str, version: str, python: str, arch: str = "x86_64", **more: object) -> Offered:
    """A wheel at an index."""
    values: dict[str, object] = {"glibc": "2.28", "uploaded": "2027-01-20", "requires_python": ">=3.11", **more}
    return Offered(project=project, version=version, python=python, arch=arch, **values)  # type: ignore[arg-type]


def as_now() -> list[Offered]:
    """What the index would offer if the catalogue were complete."""
    return [
        offered("torch", r.version, python, arch)
        for r in C.releases
        for arch, pythons in r.python.items()
        for python in pythons
    ]


def test_a_complete_catalogue_gets_no_proposal() -> None:
    assert proposals.propose(as_now(), C, checked="2027-01-21", source="index") == {}
    assert proposals.diff("", {}, name="catalog.d/refresh.yaml") == ""


def test_a_new_torch_is_proposed_with_its_pins_and_pair() -> None:
    new = [
        *as_now(),
        offered("torch", "2.16.0", "3.12", requires=REQUIRES),
        offered("torch", "2.16.0", "3.13t", requires=REQUIRES),
        offered("torchvision", "0.30.0", "3.12", requires=("torch==2.16.0",)),
        offered("torchaudio", "2.11.1", "any", "any", requires=("torch>=2.11",)),
    ]
    assert proposals.unknown(new, C) == ("2.16.0",)
    rows = proposals.propose(new, C, checked="2027-01-21", source="index")
    text = proposals.diff("", rows, name="catalog.d/refresh.yaml")
    assert text.startswith("--- a/catalog.d/refresh.yaml\n+++ b/catalog.d/refresh.yaml")
    added = "".join(line[1:] for line in text.splitlines(keepends=True)[3:])
    mine = catalog.load([("catalog.d/refresh.yaml", added)])
    release = mine.release("2.16.0")
    assert (release.pypi["x86_64"], release.triton, release.triton_python_max) == ("cu134", "4.0.0", "3.16")
    assert release.python["x86_64"] == ("3.12", "3.13t")
    pair = mine.pair("2.16.0")
    assert pair is not None and pair.torchvision == "0.30.0" and pair.proven("torchvision")
    assert mine.pins("2.16.0") is not None


def test_a_python_that_came_later_corrects_the_row() -> None:
    rows = proposals.propose([*as_now(), offered("torch", "2.14.1", "3.15")], C, checked="2027-01-21", source="index")
    mine = catalog.load([("c.yaml", proposals.inspection.as_yaml(rows))])
    assert "3.15" in mine.release("2.14.1").python["x86_64"]
    assert mine.release("2.14.1").python["aarch64"] == C.release("2.14.1").python["aarch64"]


def test_pre_releases_local_versions_and_withdrawn_ones_are_not_new() -> None:
    odd = [
        offered("torch", "2.17.0rc1", "3.12"),
        offered("torch", "2.17.0", "3.12", withdrawn=True),
        offered("torch", "1.9.0", "3.8"),
    ]
    assert proposals.unknown(odd, C) == ()


def test_a_new_and_a_withdrawn_cudnn_are_proposed_together() -> None:
    known = C.cudnn_package("13")
    assert known is not None
    wheels = [offered("nvidia-cudnn-cu13", v, "any") for v in (*known.all[:-1], "9.29.0.1")]
    wheels.append(offered("nvidia-cudnn-cu13", known.all[-1], "any", withdrawn=True))
    rows = proposals.propose([*as_now(), *wheels], C, checked="2027-01-21", source="index")
    mine = catalog.load([("c.yaml", proposals.inspection.as_yaml(rows))]).cudnn_package("13")
    assert mine is not None
    assert mine.all[-1] == "9.29.0.1" and known.all[-1] in mine.withdrawn and known.all[-1] not in mine.all


def test_the_pages_are_what_the_catalogue_makes_now() -> None:
    made = compatibility.pages(C)
    stale = [str(path) for path, text in made.items() if (ROOT / path).read_text(encoding="utf-8") != text]
    assert stale == []
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / compatibility.RULE_PAGES).glob("*.md")}
    assert there == {str(path) for path in made if path.parent == compatibility.RULE_PAGES}


def test_every_rule_has_a_page_that_names_its_sources() -> None:
    for row in C.rules():
        page = (ROOT / compatibility.RULE_PAGES / f"{row.id}.md").read_text(encoding="utf-8")
        assert all(f"`{source}`" in page for source in row.source), row.id
