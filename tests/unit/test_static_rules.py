"""Single checks of tier 1, on the facts of a good image with one thing changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import static_cases as cases

from torchyard.finding import Finding, State
from torchyard.judge import static
from torchyard.judge.static_case import Reference, step
from torchyard.judge.static_facts import Distribution, ImageFacts, Layer, Library, Sample, Spot
from torchyard.receipt import Sized

A100, CPU = "static-good-a100", "static-good-cpu"
SITE = "/opt/venv/lib/python3.11/site-packages"
TOP = 99  # a layer above all


def failed(facts: ImageFacts, of: str = A100, **more: Any) -> list[Finding]:
    """What fails when a good image has these facts."""
    ref: Reference = replace(cases.reference(of), **more)
    return [f for f in static.judge(ref, facts) if f.state is State.FAIL]


def good(name: str = A100, **changes: Any) -> ImageFacts:
    """A good image's facts, with some changed."""
    return replace(cases.facts(name), **changes)


def library(path: str, **more: Any) -> Library:
    """A library on top of the image."""
    return Library(**{"path": path, "machine": "x86_64", "layer": TOP, **more})


def with_libraries(*more: Library, name: str = A100) -> ImageFacts:
    """A good image's facts with libraries added."""
    facts = cases.facts(name)
    return replace(facts, libraries=(*facts.libraries, *more))


def with_variable(name: str, value: str, of: str = A100) -> ImageFacts:
    """A good image's facts with an environment variable set."""
    facts = cases.facts(of)
    kept = tuple(pair for pair in facts.env if pair[0] != name)
    return replace(facts, env=(*kept, (name, value)))


def rules(findings: list[Finding]) -> list[str]:
    """The rules, in their order."""
    return [f.rule for f in findings]


def test_a_card_that_the_code_has_nothing_for_is_named() -> None:
    (finding,) = failed(good(), gpus=(("a100-sxm4-40gb", "8.0"), ("v100-sxm2-16gb", "7.0")))
    assert finding.rule == "code.torch"
    assert "v100-sxm2-16gb (7.0)" in finding.seen
    assert "a100" not in finding.seen.split("nothing for")[1]


def test_ptx_of_an_older_target_is_code_for_a_newer_card() -> None:
    only_ptx = library(f"{SITE}/mine/_C.cpython-311-x86_64-linux-gnu.so", ptx=("8.0",), owner="python torch")
    assert failed(with_libraries(only_ptx)) == []


@pytest.mark.parametrize(("sass", "ok"), [(("8.0", "9.0"), True), (("9.0",), False), (("8.0", "9.0a"), True)])
def test_an_extension_needs_code_for_every_card(sass: tuple[str, ...], ok: bool) -> None:
    extension = library(f"{SITE}/mine/_C.cpython-311-x86_64-linux-gnu.so", sass=sass, owner="python torch")
    found = failed(with_libraries(extension))
    assert rules(found) == ([] if ok else ["code.extensions"])


def test_machine_code_for_another_machine_is_named() -> None:
    (finding,) = failed(with_libraries(library(f"{SITE}/mine.so", machine="aarch64")))
    assert finding.rule == "platform.machine"
    assert "mine.so is for aarch64" in finding.seen


def test_a_configuration_for_another_machine_is_named() -> None:
    (finding,) = failed(good(arch="arm64"))
    assert (finding.rule, finding.seen) == ("platform.machine", "the configuration says arm64")


@pytest.mark.parametrize("name", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_the_drivers_libraries_are_expected_from_the_host(name: str) -> None:
    extension = library(f"{SITE}/mine/_C.cpython-311-x86_64-linux-gnu.so", needed=(name,))
    assert failed(with_libraries(extension)) == []


def test_an_extension_finds_what_torch_has_loaded() -> None:
    extension = library(
        f"{SITE}/mine/_C.cpython-311-x86_64-linux-gnu.so", needed=("libtorch_cpu.so", "libcudart.so.13")
    )
    assert failed(with_libraries(extension)) == []


def test_an_extension_that_needs_what_nothing_has_fails() -> None:
    extension = library(f"{SITE}/mine/_C.cpython-311-x86_64-linux-gnu.so", needed=("libnothing.so.1",))
    (finding,) = failed(with_libraries(extension))
    assert finding.rule == "libraries.needed"
    assert "libnothing.so.1 (for " in finding.seen


def test_a_plugin_that_nothing_names_may_lack_what_it_needs() -> None:
    plugin = library(f"{SITE}/nvidia/nvshmem/lib/libtransport.so.3", needed=("libfabric.so.1",))
    assert failed(with_libraries(plugin)) == []


def test_a_library_is_found_beside_its_origin() -> None:
    one = library(
        "/opt/mine/bin/../lib/libone.so".replace("bin/../", ""), needed=("libtwo.so",), runpath=("$ORIGIN/../two",)
    )
    two = library("/opt/mine/two/libtwo.so", soname="libtwo.so")
    program = library("/usr/bin/mine", needed=("libone.so",), runpath=("/opt/mine/lib",))
    assert failed(with_libraries(one, two, program)) == []
    assert rules(failed(with_libraries(one, program))) == ["libraries.needed"]


def test_an_extension_for_cuda_12_is_the_cause_of_what_it_does_not_find() -> None:
    facts = with_libraries(
        library(f"{SITE}/mine/_C.cpython-311-x86_64-linux-gnu.so", needed=("libcudart.so.12",), owner="python mine")
    )
    facts = replace(
        facts, distributions=(*facts.distributions, Distribution(name="mine", version="1", folder=SITE, layer=TOP))
    )
    found = failed(facts)
    assert rules(found) == ["libraries.cuda-major", "wheels.locked", "libraries.needed"]
    assert [f.because for f in found[1:]] == ["consequence of libraries.cuda-major"] * 2


@pytest.mark.parametrize("name", ["libnccl.so.2", "libcublas.so.13", "libnvJitLink.so.13", "libcudnn.so.9"])
def test_a_second_copy_where_a_loader_looks_is_named(name: str) -> None:
    copy = library(f"/usr/lib/x86_64-linux-gnu/{name}", soname=name)
    (finding,) = failed(with_libraries(copy))
    assert finding.rule == "libraries.copies"
    assert copy.path in finding.seen


def test_a_copy_where_no_loader_looks_is_none() -> None:
    assert failed(with_libraries(library("/opt/backup/libnccl.so.2", soname="libnccl.so.2"))) == []


def test_a_locked_package_may_bring_its_own_openmp() -> None:
    of_torch = library(f"{SITE}/torch.libs/libgomp-a34b3233.so.1", owner="python torch")
    assert failed(with_libraries(of_torch)) == []
    stray = library("/opt/venv/lib/libiomp5.so", owner="python intel-openmp")
    assert rules(failed(with_libraries(stray))) == ["libraries.openmp"]


@pytest.mark.parametrize(
    ("folder", "rule"),
    [
        ("/usr/local/cuda/lib64/stubs", "loader.stubs"),
        ("/usr/local/cuda-12.1/compat", "loader.compat"),
        ("/usr/local/cuda-12.1/lib64", "loader.toolkit"),
    ],
)
def test_a_folder_that_does_not_belong_on_the_loaders_path_is_named(folder: str, rule: str) -> None:
    (finding,) = failed(with_variable("LD_LIBRARY_PATH", folder))
    assert (finding.rule, finding.seen.split(" ")[0].rstrip(";")) == (rule, folder)
    if rule != "loader.toolkit":
        assert rules(failed(good(loader_conf=(*good().loader_conf, folder)))) == [rule]
        assert rules(failed(good(loader_cache=(*good().loader_cache, folder)))) == [rule]


def test_a_distribution_that_is_there_twice_is_said_so() -> None:
    facts = good()
    old = Distribution(name="jinja2", version="2.0", folder=SITE, layer=TOP)
    (finding,) = failed(replace(facts, distributions=(*facts.distributions, old)))
    assert finding.rule == "wheels.locked"
    assert "jinja2 is there 2 times: 2.0 and " in finding.seen


def test_a_missing_distribution_is_said_so() -> None:
    facts = good()
    (finding,) = failed(replace(facts, distributions=tuple(d for d in facts.distributions if d.name != "jinja2")))
    assert (finding.rule, "jinja2 missing" in finding.seen) == ("wheels.locked", True)


@pytest.mark.parametrize("change", ["version", "extra", "missing"])
def test_the_distributions_packages_are_the_locked_ones(change: str) -> None:
    facts = good()
    first, *rest = facts.packages
    changed = {
        "version": (replace(first, version="0"), *rest),
        "extra": (*facts.packages, replace(first, name="extra")),
        "missing": tuple(rest),
    }[change]
    (finding,) = failed(replace(facts, packages=changed))
    assert finding.rule == "os.locked"
    assert {"version": f"{first.name} 0 (locked", "extra": "extra", "missing": f"{first.name} missing"}[
        change
    ] in finding.seen


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("HTTP_PROXY", "http://proxy:3128", "traces.proxies"),
        ("REQUESTS_CA_BUNDLE", "/etc/ca.pem", "traces.certificates"),
        ("PIP_INDEX_URL", "https://mirror.example.org/simple", "traces.addresses"),
        ("AWS_SECRET_ACCESS_KEY", "abc", "traces.secrets"),
        ("PYTHONPATH", "/somewhere", "python.shadows"),
        ("LD_PRELOAD", "/lib/mine.so", "python.shadows"),
        ("PYTHONNOUSERSITE", "", "python.shadows"),
    ],
)
def test_a_variable_that_does_not_belong_in_an_image_is_named(name: str, value: str, rule: str) -> None:
    (finding,) = failed(with_variable(name, value))
    assert finding.rule == rule
    assert name in finding.seen


@pytest.mark.parametrize(
    ("name", "value"), [("PATH", "/usr/sbin"), ("VIRTUAL_ENV", ""), ("NVIDIA_REQUIRE_CUDA", "cuda>=99.0")]
)
def test_a_variable_of_the_recipe_with_another_value_is_named(name: str, value: str) -> None:
    (finding,) = failed(with_variable(name, value))
    assert finding.rule == "config.environment"
    assert name in finding.seen


def test_a_secret_in_the_history_is_found_and_not_told() -> None:
    facts = good()
    step = ("RUN git clone https://me:hunter2hunter2@git.example.org/x", 3)
    (finding,) = failed(replace(facts, history=(*facts.history, step)))
    assert finding.rule == "traces.secrets"
    assert "hunter2" not in finding.seen


def test_a_user_who_sets_a_variable_in_env_yaml_gets_it() -> None:
    ref = cases.reference(A100)
    image = ref.lock.image
    packages = replace(image.packages, env=(("PYTHONPATH", "/mine"),))
    lock = replace(ref.lock, image=replace(image, packages=packages))
    assert failed(with_variable("PYTHONPATH", "/mine"), lock=lock) == []


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("setuid", (Spot(path="/usr/bin/env", layer=1, what="4755"),), "rights.setuid"),
        ("writable", (Spot(path="/opt/venv/bin", layer=1, what="0777"),), "rights.writable"),
        ("writable", (Spot(path="/tmp", layer=1, what="0777"),), "rights.writable"),
        ("secrets", (Spot(path="/k", layer=1, what="a private key"),), "traces.secrets"),
        ("certificates", (Spot(path="/c", layer=1),), "traces.certificates"),
        ("addresses", (Spot(path="/etc/pip.conf", layer=1, what="mirror.example.org"),), "traces.addresses"),
        ("addresses", (Spot(path="/etc/environment", layer=1, what="a proxy"),), "traces.proxies"),
        ("shadows", (Spot(path="/root/.local/lib/python3.11/site-packages", layer=1, what="torch"),), "python.shadows"),
        ("late", (Sample(layer=1, count=1, first=("/x",)),), "times.files"),
        ("late_documents", (Spot(path="created", layer=1, what="2030-01-01T00:00:00Z"),), "times.config"),
        ("timed_bytecode", (Sample(layer=1, count=1, first=("/x.pyc",)),), "times.bytecode"),
    ],
)
def test_what_a_layer_should_not_have_is_named(field: str, value: Any, rule: str) -> None:
    assert rules(failed(good(**{field: value}))) == [rule]


def test_what_is_younger_than_the_good_one_below_it_follows_from_what_was_put_there() -> None:
    late = (Spot(path="history[20].created", layer=5, what="2030"), Spot(path="created", layer=6, what="2030"))
    for layer, expected in ((6, [("rights.setuid", ""), ("times.config", "consequence of rights.setuid")]),
                            (4, [("rights.setuid", ""), ("times.config", "")])):  # fmt: skip
        spoiled = good(late_documents=late, setuid=(Spot(path="/usr/bin/env", layer=layer, what="4755"),))
        assert [(f.rule, f.because) for f in failed(spoiled)] == expected


def sized(*changes: tuple[int, float]) -> tuple[Sized, ...]:
    """The layers of the build before, where some were another size, as a part of what they are now."""
    layers = [Sized(diff_id=each.diff_id, step=step(each.words), size=each.size) for each in good().layers]
    for number, part in changes:
        layers[number] = replace(layers[number], diff_id="other", size=int(layers[number].size * part))
    return tuple(layers)


def test_a_layer_above_the_budget_is_named_with_its_step_its_size_and_what_grew() -> None:
    large = max(layer.size for layer in good().layers)
    (finding,) = failed(good(), budget=large - 1, former=sized((10, 0.5), (8, 1.5)))
    assert finding.rule == "size.layers"
    assert finding.expected == f"at most {(large - 1) / 1e6:.0f} MB each"
    assert "layer 8 (wheels: torch==2.14.1 triton==3.8.0): 2080 MB" in finding.seen
    grown = "since the build before: layer 11 (steps install-wheels, protect) grew from 116 MB to 232 MB"
    assert finding.seen.endswith(grown)
    assert "budget.layer" in finding.fix


def test_an_image_above_the_budget_is_named_with_its_largest_layers() -> None:
    whole = sum(layer.size for layer in good().layers)
    (finding,) = failed(good(), image_budget=whole - 1, former=sized((8, 0.5)))
    assert finding.rule == "size.image"
    assert "the largest: layer 8 (wheels: torch==2.14.1 triton==3.8.0)" in finding.seen
    assert "layer 9 (steps install-debs, make-environment) grew from 162 MB to 325 MB" in finding.seen
    assert "budget.image" in finding.fix


def test_a_layer_is_known_again_by_its_step_where_only_versions_differ() -> None:
    before = list(sized())
    before[7] = replace(before[7], diff_id="other", step="wheels: torch==2.13.0 triton==3.7.0", size=10)
    (finding,) = failed(good(), image_budget=1, former=tuple(before))
    assert "grew from 0 MB to 2080 MB" in finding.seen and "is new" not in finding.seen
    (finding,) = failed(good(), image_budget=1, former=tuple(before[:7]))
    assert "layer 8 (wheels: torch==2.14.1 triton==3.8.0) is new" in finding.seen
    (finding,) = failed(good(), image_budget=1, former=tuple(replace(each, step="other words") for each in sized()))
    assert "since the build before" not in finding.seen


def with_extend(of: str = CPU) -> tuple[Reference, ImageFacts, int]:
    """A good image whose recipe has an `extend` that made one layer: what it is judged by, its facts, that layer."""
    ref, facts = cases.reference(of), cases.facts(of)
    packages = replace(ref.lock.image.packages, extend="RUN mine\n")
    ref = replace(ref, lock=replace(ref.lock, image=replace(ref.lock.image, packages=packages)))
    own = Layer(diff_id="mine", words="RUN /bin/sh /run/yard/steps/sealed mine # buildkit", size=1, files=1)
    layers = (*facts.layers[:-1], own, facts.layers[-1])
    at = len(layers) - 2
    labels = next(n for n, (words, _) in enumerate(facts.history) if words.startswith("LABEL"))
    moved = tuple((words, layer + 1) for words, layer in facts.history[labels + 1 :])
    history = (*facts.history[: labels + 1], (own.words, at), *moved)
    return ref, replace(facts, layers=layers, history=history), at


def test_what_extend_adds_is_said_and_passes() -> None:
    ref, facts, at = with_extend()
    facts = replace(
        facts,
        distributions=(*facts.distributions, Distribution(name="mine", version="1", folder=SITE, layer=at)),
        packages=(*facts.packages, replace(facts.packages[0], name="extra", version="2", first=at)),
        late=(Sample(layer=at, count=3, first=("/x",)),),
        timed_bytecode=(Sample(layer=at, count=2, first=("/x.pyc",)),),
    )
    found = {f.rule: f for f in static.judge(ref, facts)}
    assert [f for f in found.values() if f.state is State.FAIL] == []
    assert found["wheels.locked"].seen.endswith("and of `extend`: mine 1")
    assert found["os.locked"].seen.endswith("and of `extend`: extra 2")
    assert "3 in layers of `extend`" in found["times.files"].seen
    assert "2 in layers of `extend`" in found["times.bytecode"].seen


def test_without_an_extend_no_layer_is_the_users_own() -> None:
    _, facts, at = with_extend()
    (finding,) = failed(replace(facts, late=(Sample(layer=at, count=1, first=("/x",)),)), CPU)
    assert finding.rule == "times.files"


def test_what_extend_changes_of_the_lock_fails_and_the_key_for_it_is_named() -> None:
    ref, facts, at = with_extend()
    changed = tuple(replace(d, version="0", layer=at) if d.name == "numpy" else d for d in facts.distributions)
    (finding,) = [f for f in static.judge(ref, replace(facts, distributions=changed)) if f.state is State.FAIL]
    assert finding.rule == "wheels.locked"
    assert "packages.pip" in finding.fix


def test_what_is_built_on_top_of_an_image_with_an_extend_is_not_of_it() -> None:
    ref, facts, at = with_extend()
    top = Layer(diff_id="top", words="RUN /bin/sh -c pip install cowsay # buildkit", size=1, files=1)
    facts = replace(
        facts,
        layers=(*facts.layers, top),
        history=(*facts.history, (top.words, at + 2)),
        distributions=(*facts.distributions, Distribution(name="cowsay", version="1", folder=SITE, layer=at + 2)),
    )
    assert rules([f for f in static.judge(ref, facts) if f.state is State.FAIL]) == ["wheels.locked"]


@pytest.mark.parametrize("part", ["cc", "c++", "ld", "as", "libc headers", "Python headers"])
def test_without_a_part_of_the_compiler_it_fails(part: str) -> None:
    """B111: every image can compile."""
    found = failed(good(CPU, present=tuple(p for p in good(CPU).present if p != part)), CPU)
    assert rules(found) == ["tools.compiler"]


@pytest.mark.parametrize(
    "part", ["libibverbs.so.1", "librdmacm.so.1", "libnuma.so.1", "provider mlx5", "provider list"]
)
def test_without_a_part_of_rdma_it_fails(part: str) -> None:
    found = failed(good(CPU, present=tuple(p for p in good(CPU).present if p != part)), CPU)
    assert rules(found) == ["tools.rdma"]


def test_a_cuda_torch_in_a_cpu_image_is_another_build() -> None:
    found = failed(good(CPU, torch_cuda="13.0"), CPU)
    assert found[0].rule == "torch.build"
    assert found[0].expected == "a CPU build"


def test_no_torch_at_all_is_said_so() -> None:
    found = failed(good(torch_version="", torch_cuda=""))
    assert found[0].rule == "torch.release"
    assert found[0].seen == "no torch in the environment"
