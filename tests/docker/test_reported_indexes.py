"""Reports of real failures in the choice of wheels, told by real indexes on loopback; no Docker engine is needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_wheel_index import (  # noqa: F401  (fixtures)
    CP311,
    Index,
    _plain_environment,
    places,
    pypi,
    resolve,
    serve,
    versions,
)

from torchyard.errors import Incompatible, InputError, Problems
from torchyard.world import pipconf
from torchyard.world.wheel_index import WheelIndex

Serve = Callable[..., Index]


def build(serve: Serve, name: str, *wheels: str) -> tuple[dict[str, str], str, Index]:  # noqa: F811
    """An index of one build of torch: the mirrors entry and the name by which it is asked, and the index."""
    own = serve(name)
    for version in wheels:
        own.add("torch", version, tag=CP311, requires=("typing-extensions",))
    prefix, _, path = own.url.rpartition("/")
    return {"pytorch": prefix}, f"pytorch-{path}", own


def test_b005_the_build_of_the_row_is_pinned_and_where_only_another_can_be_had_it_is_refused(pypi: Index) -> None:  # noqa: F811
    with pytest.raises(InputError, match=r"belongs to other builds of torch: 1\.10\.2") as caught:
        resolve(places(pypi.url), torch="1.10.2+cu113")
    assert "1.10.2+cu113" in caught.value.where + caught.value.what
    pypi.add("torch", "1.10.2+cu113", tag=CP311, requires=("typing-extensions",))
    pins = resolve(places(pypi.url), torch="1.10.2+cu113")
    torch = next(pin for pin in pins if pin.name == "torch")
    assert (torch.version, torch.file) == ("1.10.2+cu113", f"torch-1.10.2+cu113-{CP311}.whl") and len(
        torch.sha256
    ) == 64


def test_b019_an_open_bound_is_held_by_the_pin_and_an_extension_without_a_wheel_is_told_at_once(pypi: Index) -> None:  # noqa: F811
    pypi.add("torch", "2.1.0", tag=CP311)
    pypi.add("some_extension", "1.0", requires=("torch>=1.2",))
    pins = resolve(places(pypi.url), "torch>=1.2", "some-extension")
    assert versions(pins) == {"torch": "1.10.2", "typing-extensions": "4.1", "some-extension": "1.0"}
    (pypi.files / "compiled_extension-1.0.tar.gz").write_bytes(b"")
    with pytest.raises(Incompatible, match=r"compiled-extension 1\.0 exists only as source") as caught:
        resolve(places(pypi.url), "torch>=1.2", "compiled-extension")
    assert "pip wheel" in caught.value.hint


def test_b025_an_inherited_cpu_index_with_a_final_release_changes_nothing(
    pypi: Index,  # noqa: F811
    serve: Serve,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirrors, index, own = build(serve, "own", "2.12.0rc1+cu130")
    wanted = {"torch": "2.12.0rc1+cu130", "index": index}
    expected = resolve(places(pypi.url, mirrors=mirrors), **wanted)
    cpu = serve("cpu")
    for version in ("2.12.0", "2.12.0+cpu", "2.12.0rc1+cpu", "2.12.0rc1"):
        cpu.add("torch", version, tag=CP311)
    monkeypatch.setenv("PIP_INDEX_URL", pypi.url)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", cpu.url)
    monkeypatch.setenv("UV_EXTRA_INDEX_URL", cpu.url)
    assert resolve(WheelIndex(pipconf.read(), mirrors), **wanted) == expected
    assert versions(expected)["torch"] == "2.12.0rc1+cu130"
    (own.files / f"torch-2.12.0rc1+cu130-{CP311}.whl").unlink()
    with pytest.raises(InputError, match=r"other builds of torch.*2\.12\.0\+cpu"):
        resolve(WheelIndex(pipconf.read(), mirrors), **wanted)


def test_b027_torch_for_cpus_brings_no_cuda_though_the_default_build_would(pypi: Index, serve: Serve) -> None:  # noqa: F811
    pypi.add("torch", "2.6.0", tag=CP311, requires=("nvidia-cublas-cu12", "typing-extensions"))
    pypi.add("torch", "2.7.0", tag=CP311, requires=("nvidia-cublas-cu12", "typing-extensions"))
    pypi.add("nvidia_cublas_cu12", "12.4")
    pypi.add("web_service", "1.0", requires=("torch",))
    mirrors, index, _ = build(serve, "own", "2.6.0+cpu")
    pins = resolve(places(pypi.url, mirrors=mirrors), "torch", "web-service", torch="2.6.0+cpu", index=index)
    assert versions(pins) == {"torch": "2.6.0+cpu", "typing-extensions": "4.1", "web-service": "1.0"}


def test_b029_a_package_that_pins_another_torch_is_refused_with_a_version_that_agrees(pypi: Index) -> None:  # noqa: F811
    pypi.add("torch", "2.0.1", tag=CP311)
    pypi.add("needs_torch", "1.0", requires=("torch==2.0.1",))
    before = versions(resolve(places(pypi.url)))["torch"]
    with pytest.raises(Incompatible) as caught:
        resolve(places(pypi.url), "needs-torch==1.0")
    assert "needs-torch" in caught.value.where and "torch==2.0.1" in caught.value.what
    pypi.add("needs_torch", "0.9", requires=("torch",))
    with pytest.raises(Incompatible) as caught:
        resolve(places(pypi.url), "needs-torch==1.0")
    assert "needs-torch==0.9" in caught.value.hint
    assert versions(resolve(places(pypi.url), "needs-torch"))["torch"] == before == "1.10.2"


def test_b034_where_only_a_cpu_build_can_be_had_a_cuda_image_is_refused(pypi: Index, serve: Serve) -> None:  # noqa: F811
    mirrors, index, _ = build(serve, "own", "2.14.1+cpu")
    pypi.add("torch", "2.14.1+cpu", tag=CP311)
    with pytest.raises((InputError, Problems), match=r"other builds of torch: 2\.14\.1\+cpu"):
        resolve(places(pypi.url, mirrors=mirrors), torch="2.14.1+cu126", index=index)
    with pytest.raises((InputError, Problems), match=r"other builds of torch: 2\.14\.1\+cpu"):
        resolve(places(pypi.url), torch="2.14.1")
