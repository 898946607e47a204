"""Judging what torch does on GPUs: devices and driver, kernels, memory, time, peers, and how NCCL goes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..finding import Finding, State
from ..versions import below
from .cpu_ends import compare

if TYPE_CHECKING:
    from .gpu import Expected

ERRORS = {
    "float32": 2e-5,
    "tf32": 5e-3,
    "bfloat16": 3e-2,
    "float16": 5e-3,
    "float8": 5e-2,
    "convolution": 5e-3,  # cuDNN computes in tf32 where the card has it
}
PRECISION = {"fp16": "float16", "bf16": "bfloat16", "tf32": "tf32", "fp8": "float8"}  # the catalogue's word: ours
LEAST_OF_PEAK = 0.4  # of the catalogue's dense figure, for a square product of 8192: less means that something is wrong
UNTOLD = "nothing is told"
NOT_STARTED = {  # what CUDA says where it does not start, by its number
    802: "system not yet initialized",
    803: "unsupported display driver / cuda driver combination",
    804: "forward compatibility was attempted on non supported HW",
}
CLOCKS = 0.2  # how far the events of the device and the clock of the host may be apart


def devices(want: Expected, seen: Mapping[str, Any]) -> list[Finding]:
    """The devices are those of the entry, as many, of its capabilities; MIG is named as such."""
    found = seen["devices"]
    if "error" in seen:
        loaded = ", ".join(seen.get("libcuda", ()))
        told = seen["error"] + (f"; libcuda is {loaded}" if loaded else "")
        return [_finding("gpu.devices", "CUDA starts", False, "no error", told, _start(want, seen))]
    listed = [(card, profile) for card, profiles in seen.get("slices", ()) for profile in profiles]
    slices = len(listed) or sum(bool(each.get("mig")) for each in found)
    told = ", ".join(f"{each['name']} ({each['cc']})" + (" MIG slice" if each.get("mig") else "") for each in found)
    names = bool(want.names) and all(_is(each["name"], want.names) for each in found)
    capabilities = all(each["cc"] in want.capabilities for each in found)
    if listed:  # CUDA shows a process one slice of all
        told += f"; listed: {', '.join(f'{card} MIG {profile}' for card, profile in listed)}"
    count = slices if want.mig else len(found)
    mig = all(profile == want.mig for _, profile in listed) if want.mig else not slices
    good = bool(found) and count >= want.count and names and capabilities and mig
    fix = "the entry of env.yaml names other hardware, or the container was not given all of it"
    if slices and not want.mig:
        fix = f"{slices} MIG slices: write mig in the hardware entry, or turn MIG off (nvidia-smi -mig 0)"
    expected = f"{want.count} of {' or '.join(want.names)} ({', '.join(want.capabilities)})"
    expected += f" MIG {want.mig}" if want.mig else ""
    return [_finding("gpu.devices", "the devices of the entry", good, expected, told or "none", fix)]


def _start(want: Expected, seen: Mapping[str, Any]) -> str:
    """What mends a CUDA that does not start: each error of its own (cuda.h) has its own cause."""
    error = seen["error"]
    code = next((code for code, said in NOT_STARTED.items() if f"Error {code}" in error or said in error), 0)
    version = seen["driver"] or "the version that nvidia-smi shows"
    match code:
        case 802 if want.nvswitch:
            return (
                "on machines with NVSwitch the fabric manager has to run, in the driver's own version"
                f" ({version}): systemctl status nvidia-fabricmanager"
            )
        case 802:
            return "the devices have not started: nvidia-smi must list them on the host, dmesg says what stops them"
        case 803:
            return (
                f"libcuda in the container and the kernel module ({version}) are of two drivers: load the module"
                " anew or reboot, then make the CDI specification anew: nvidia-ctk cdi generate"
            )
        case 804:
            return (
                f"CUDA's compatibility libcuda was loaded, which {' or '.join(want.names)} does not take: drop its"
                " folder (compat) from LD_LIBRARY_PATH and /etc/ld.so.conf.d, or install a newer driver on the host"
            )
        case _:
            return "see what it says: a driver that is missing in the container, or too old for this CUDA"


def _is(name: str, wanted: Collection[str]) -> bool:
    """Whether a device has one of these names; a MIG slice begins with its card's, old drivers leave NVIDIA out."""
    short = name.removeprefix("NVIDIA ")
    known = [each.removeprefix("NVIDIA ") for each in wanted]
    return any(short == each or short.startswith(f"{each} MIG") for each in known)


def driver(least: str, seen: Mapping[str, Any]) -> Finding:
    """The driver is new enough."""
    what = "the driver against the least that this image needs"
    if not seen["driver"]:
        return Finding.skipped("gpu.driver", what=what, because=f"{UNTOLD} of the driver's version in the container")
    if not least:
        return Finding.skipped("gpu.driver", what=what, because="the plan names no least driver")
    good = not below(seen["driver"], least)
    fix = f"upgrade the driver to {least} or newer, or choose a CUDA that this one serves: ./yard explain"
    return _finding("gpu.driver", what, good, f"{least} or newer", seen["driver"], fix)


def kernels(precision: Collection[str], seen: Mapping[str, Any]) -> list[Finding]:
    """Every type that the card has, and float32 and a convolution, are right on every device."""
    wanted = {"float32", "convolution", *(PRECISION[each] for each in precision if each in PRECISION)}
    fix = "no code for this card in this build (./yard explain), or a broken device: compare with another one"
    if any(each.get("float8") == "absent" for each in seen["devices"].values()):
        wanted.discard("float8")
    return [
        compare(
            f"gpu.kernels.{name}",
            what=f"{name} on every device against float64",
            errors={place: each[name] for place, each in seen["devices"].items()},
            limits=dict.fromkeys(seen["devices"], ERRORS[name]),
            fix=fix,
        )
        for name in ERRORS
        if name in wanted
    ]


def memory(seen: Mapping[str, Any]) -> list[Finding]:
    """The allocator gives, takes back, and refuses in a way that a program can go on from."""
    bad = [
        f"{place}: held {each['held']}, left {each['left']}, too much gave {each['too_much']}"
        for place, each in seen["devices"].items()
        if each["left"] or each["too_much"] == "given" or each["sum"] != 3 * -(-each["held"] // (1 << 20))
    ]
    what = "memory that is given, taken back, and refused where there is too little"
    told = "; ".join(bad) or f"{len(seen['devices'])} devices, as it should be"
    return [
        _finding("gpu.memory", what, not bad, "nothing left, and an error for too much", told, "see PyTorch's notes")
    ]


def timing(tflops: Mapping[str, float], seen: Mapping[str, Any], *, slices: bool = False) -> list[Finding]:
    """Events agree with the clock, and products reach a usual part of the catalogue's peak, which is a whole card's."""
    peaks = {} if slices else {ours: tflops[word] for word, ours in PRECISION.items() if word in tflops}
    if not peaks:
        because = "the catalogue has no figure for this card, or the entry has several cards"
        because = "the devices are MIG slices, and the catalogue's figure is a whole card's" if slices else because
        return [
            _events(seen),
            Finding.skipped("gpu.peak", what="the fraction of the catalogue's peak", because=because),
        ]
    return [_events(seen), *(_peak(name, _of(seen, name, "tflops"), peak) for name, peak in peaks.items())]


def _of(seen: Mapping[str, Any], name: str, key: str) -> dict[str, float]:
    """A figure of a type on each device that has it: one that a card cannot compute is told by the kernels."""
    return {place: types[name][key] for place, types in seen["devices"].items() if key in types.get(name, {})}


def _events(seen: Mapping[str, Any]) -> Finding:
    found = {
        f"{name} on {place}": (each["events_ms"], each["clock_ms"])
        for place, types in seen["devices"].items()
        for name, each in types.items()
        if "error" not in each
    }
    apart = {name: abs(events - clock) / max(clock, 1e-9) for name, (events, clock) in found.items()}
    worst = max(apart, key=lambda name: apart[name], default="")
    told = (
        f"{found[worst][0]:.1f} ms by events, {found[worst][1]:.1f} ms by the clock ({worst})" if worst else "nothing"
    )
    good, expected = bool(worst) and apart[worst] <= CLOCKS, f"within {CLOCKS:.0%}"
    what, fix = "products timed by events and by the clock", "the device's timer is off: update the driver"
    return _finding("gpu.events", what, good, expected, told, fix)


def _peak(name: str, seen: Mapping[str, float], peak: float) -> Finding:
    rule, what = f"gpu.peak.{name}", f"{name} products of 8192 against the catalogue's peak of {peak:g} TFLOPS"
    if not seen:
        return Finding.skipped(rule, what=what, because="no device computed them, see gpu.kernels")
    slow = {place: value for place, value in seen.items() if value / peak < LEAST_OF_PEAK}
    told = ", ".join(f"{place} {value:.1f} TFLOPS, {value / peak:.0%}" for place, value in (slow or seen).items())
    fix = "look at clocks, power limit and temperature (nvidia-smi -q -d PERFORMANCE), and at who else uses the card"
    return _finding(rule, what, not slow, f"{LEAST_OF_PEAK:.0%} or more", told, fix)


def peers(nvlink: bool, seen: Mapping[str, Any]) -> list[Finding]:
    """What is copied between devices arrives; with NVLink each reaches the other's memory."""
    places = seen["devices"]
    pairs = [(i, j) for i in range(len(places)) for j in range(len(places)) if i != j]
    if not pairs:
        return [Finding.skipped("gpu.peers", what="access of devices to each other", because="there is one device")]
    broken = [f"{places[i]} to {places[j]}" for i, j in pairs if not seen["whole"][i][j]]
    apart = [f"{places[i]} to {places[j]}" for i, j in pairs if not seen["reach"][i][j]]
    reach = len(pairs) - len(apart)
    told = f"not whole: {', '.join(broken)}" if broken else f"{reach} of {len(pairs)} pairs reach each other directly"
    speeds = [seen["speed"][i][j] for i, j in pairs] if "speed" in seen else []
    told += f", {min(speeds):g} to {max(speeds):g} GB/s" if speeds else ""
    good = not broken and not (nvlink and apart)
    expected = "copies arrive whole" + (", every pair directly (NVLink)" if nvlink else "")
    fix = "faulty memory or links where copies are not whole; else look at nvidia-smi topo -m, IOMMU and ACS"
    return [_finding("gpu.peers", "access of devices to each other", good, expected, told, fix)]


def transport(fabric: str, nvlink: bool, seen: Mapping[str, Any]) -> Finding:
    """NCCL goes by the fabric that the site has: a socket beside it is a fail, and NVLink is not left for memory."""
    ways, what = seen["transports"], "how NCCL goes, and its bus bandwidth"
    width = f"{', '.join(ways) or 'unknown'}; {seen.get('bus_bandwidth', 0):g} GB/s"
    if not ways:
        return Finding.skipped("gpu.transport", what=what, because=f"{UNTOLD} by NCCL's log of how it goes")
    socket = any(way == "NET/Socket" for way in ways)
    if fabric != "none" and socket:
        fix = "RDMA user space and a provider must be in the image, /dev/infiniband and memlock in the container"
        return _finding("gpu.transport", what, False, f"no socket: the site has {fabric}", width, fix)
    memory_only = nvlink and seen["world"] > 1 and not any(way.startswith(("P2P", "NVLS")) for way in ways)
    fix = "peers do not reach each other: nvidia-smi topo -m; in containers, --ipc or a larger /dev/shm"
    return _finding("gpu.transport", what, not memory_only, "P2P between devices" if nvlink else "any", width, fix)


def compiled(found: list[Finding], seen: Mapping[str, Any]) -> list[Finding]:
    """The findings on torch.compile, where Triton makes the kernels and calls a compiler for what launches them."""
    renamed = [replace(f, what=f.what.replace("a C++ compiler", "a compiler")) for f in found]
    if "error" in seen:
        return renamed
    triton = seen.get("triton") or {}
    good = bool(triton.get("version")) and triton.get("kernels", 0) > 0
    told = f"Triton {triton.get('version') or 'was not loaded'}, {triton.get('kernels', 0)} kernels in its caches"
    fix = "torch.compile fell back to eager code, or made code for the CPU: is triton in the image?"
    through = _finding("compile.triton", "kernels that Triton made", good, "Triton, at least one kernel", told, fix)
    return [*renamed, through]


def profiled(seen: Mapping[str, Any]) -> list[Finding]:
    """The trace has kernels of the device."""
    told = f"{seen['events']} events, {seen['kernels']} kernels"
    fix = "CUPTI may not be allowed: the driver's NVreg_RestrictProfilingToAdminUsers, or it is missing in the image"
    return [_finding("gpu.profiler", "kernels in a trace", seen["kernels"] > 0, "at least one", told, fix)]


def _finding(rule: str, what: str, good: bool, expected: str, seen: str, fix: str) -> Finding:
    state = State.PASS if good else State.FAIL
    return Finding(rule=rule, state=state, what=what, expected=expected, seen=seen, fix="" if good else fix)
