"""The facts of an image, of its files and its configuration: nothing of it is started."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import render
from ..differ import times
from ..judge import static_facts as facts
from ..judge.static_facts import SHOWN, WANTED, ImageFacts
from ..lock import LockedImage
from . import image_source
from .engine import Engine
from .image_source import Read
from .image_tar import Entry
from .image_tree import Tree
from .workspace import Workspace

_PACKAGES = re.compile(
    r"^(?P<site>/.*/(?:site|dist)-packages)/(?P<info>[^/]+)\.(?:dist|egg)-info/(?:METADATA|PKG-INFO)$"
)
_NAME = re.compile(r"^Name:\s*(\S+)", re.MULTILINE)
_VERSION = re.compile(r"^Version:\s*(\S+)", re.MULTILINE)
_SO = re.compile(r"\.so(?:\.[0-9.]+)?$")
_PROGRAM = re.compile(r"^/(?:usr/)?s?bin/|^/usr/local/bin/")
_TORCH = re.compile(r"^(?:__version__|cuda)\b[^=]*=\s*['\"]?([^'\"\n]*)['\"]?\s*$", re.MULTILINE)
_MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_STATUS = "/var/lib/dpkg/status"
_VOLATILE = ("/proc/", "/sys/", "/dev/")
_CERTIFICATES = ("/usr/local/share/ca-certificates/", "/etc/ssl/certs/", "/etc/pki/ca-trust/source/anchors/")
_BUNDLED = "/usr/share/ca-certificates/"
_SETUID, _WRITABLE = 0o6000, 0o002


def gather(engine: Engine, image: str, lock: LockedImage, work: Workspace, say: Callable[[str], None]) -> ImageFacts:
    """The facts of an image that the engine has, as they matter to this lock."""
    return of(image_source.read(engine, image, work, say), image, lock)


@dataclass(slots=True)
class _Owners:
    """Which package has a path, and the layer that has the package's record."""

    paths: dict[str, str] = field(default_factory=dict)
    layers: dict[str, int] = field(default_factory=dict)

    def of(self, path: str) -> str:
        return self.paths.get(path, "")

    def brought(self, path: str, layer: int) -> bool:
        """Whether a file came with its package and was not touched later."""
        return layer <= self.layers.get(self.paths.get(path, ""), -1)


def of(read: Read, image: str, lock: LockedImage) -> ImageFacts:
    """The facts of an image whose layers were seen."""
    tree = Tree(read.layers)
    config = read.config.get("config") or {}
    history = read.config.get("history") or []
    owners, losses, changes = _Owners(), list[facts.Loss](), list[facts.Loss]()
    distributions = _distributions(tree, lock, owners, losses, changes)
    packages = _packages(tree, owners, losses)
    words = [step.get("created_by", "") for step in history if not step.get("empty_layer")]
    base = next((number for number, each in enumerate(words) if each != words[0]), len(words))
    version, cuda = _torch(tree, lock)
    conf, cache, loader_layer = _loader(tree)
    present, missing = _wanted(tree, lock)
    return ImageFacts(
        image=image,
        arch=read.config.get("architecture", ""),
        env=tuple(_pair(line) for line in config.get("Env") or ()),
        labels=tuple(sorted((config.get("Labels") or {}).items())),
        user=config.get("User", ""),
        history=_history(history),
        layers=tuple(
            facts.Layer(
                diff_id=diff_id,
                words=words[number] if number < len(words) else "",
                size=sum(entry.size for entry in layer.entries if entry.is_file),
                files=len(layer.entries),
            )
            for number, (diff_id, layer) in enumerate(zip(read.diff_ids, read.layers))
        ),
        packages=packages,
        distributions=distributions,
        torch_version=version,
        torch_cuda=cuda,
        libraries=_libraries(tree, owners),
        links=_links(tree),
        loader_conf=conf,
        loader_cache=cache,
        loader_layer=loader_layer,
        present=present,
        missing=missing,
        losses=tuple(losses),
        changes=tuple(changes),
        status_layer=max((n.layer for path, n in tree.nodes.items() if path.startswith(_STATUS)), default=-1),
        setuid=_moded(tree, owners, base, lambda e: e.is_file and bool(e.mode & _SETUID)),
        writable=_moded(tree, owners, base, lambda e: e.kind != "2" and bool(e.mode & _WRITABLE)),
        late=_late(tree, lock.epoch),
        late_documents=_late_documents(read.config, lock.epoch),
        timed_bytecode=_timed(tree),
        secrets=_secrets(tree, owners),
        addresses=_addresses(tree, owners, base),
        certificates=_certificates(tree, owners),
        shadows=(*_shadows(tree), *_strays(tree, lock, owners)),
        epoch=lock.epoch,
    )


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    return name, value


def _history(steps: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, int], ...]:
    """Every step with the layer that it made, or else the last one before it."""
    found, layer = [], -1
    for step in steps:
        layer += 0 if step.get("empty_layer") else 1
        found.append((str(step.get("created_by", "")), max(layer, 0)))
    return tuple(found)


def _hidden(tree: Tree, path: str, layer: int) -> int:
    """The layer that hides what a layer has at this path; 0 where it can be seen."""
    node = tree.nodes.get(path)
    if node is not None and node.layer == layer:
        return 0
    return node.layer if node is not None else max(tree.lost(path), 0)


def _distributions(
    tree: Tree, lock: LockedImage, owners: _Owners, losses: list[facts.Loss], changes: list[facts.Loss]
) -> tuple[facts.Distribution, ...]:
    """Every distribution in any folder; of those in the environment, what is not as they say."""
    found = []
    site = _site(lock)
    for path, node in list(tree.files()):
        match = _PACKAGES.match(path)
        text = tree.text(path) if match else None
        if match is None or text is None:
            continue
        name, version = _NAME.search(text), _VERSION.search(text)
        normal = re.sub(r"[-_.]+", "-", name[1] if name else match["info"]).lower()
        found.append(
            facts.Distribution(
                name=normal, version=version[1] if version else "", folder=match["site"], layer=node.layer
            )
        )
        owner = f"python {normal}"
        owners.layers[owner] = max(node.layer, owners.layers.get(owner, -1))
        record = tree.text(path.rpartition("/")[0] + "/RECORD")
        if record is not None and match["site"] == site:
            _record(tree, owners, owner, match["site"], record, losses, changes)
    return tuple(sorted(found, key=lambda d: (d.name, d.folder, d.version)))


def _record(
    tree: Tree,
    owners: _Owners,
    owner: str,
    site: str,
    record: str,
    losses: list[facts.Loss],
    changes: list[facts.Loss],
) -> None:
    """Compare the files of a distribution with what it says of them."""
    gone: list[str] = []
    changed: list[tuple[str, int]] = []
    for row in csv.reader(io.StringIO(record)):
        if not row:
            continue
        path = _joined(site, row[0])
        owners.paths.setdefault(path, owner)
        node = tree.nodes.get(path) or tree.at(path)
        if node is None:
            if not path.endswith((".pyc", "/RECORD", "/INSTALLER", "/REQUESTED", "/direct_url.json", "/uv_cache.json")):
                gone.append(path)
        elif len(row) > 2 and row[2].isdigit() and node.entry.is_file and node.entry.size != int(row[2]):
            changed.append((path, node.layer))
    if gone:
        losses.append(_loss(owner, gone, max(tree.lost(path) for path in gone)))
    if changed:
        changes.append(_loss(owner, [path for path, _ in changed], max(layer for _, layer in changed)))


def _loss(owner: str, paths: list[str], layer: int) -> facts.Loss:
    return facts.Loss(owner=owner, count=len(paths), first=tuple(sorted(paths)[:SHOWN]), layer=layer)


def _joined(folder: str, path: str) -> str:
    if path.startswith("/"):
        return path
    parts = folder.split("/")
    for part in path.split("/"):
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _packages(tree: Tree, owners: _Owners, losses: list[facts.Loss]) -> tuple[facts.Package, ...]:
    found = []
    first = _first_listed(tree)
    for name, version, architecture, multi in _status(_status_texts(tree)):
        found.append(facts.Package(name=name, version=version, architecture=architecture, first=first.get(name, 0)))
        listed = f"/var/lib/dpkg/info/{name}{':' + architecture if multi else ''}.list"
        text, node = tree.text(listed), tree.at(listed)
        if text is None or node is None:
            continue
        owner = f"os {name}"
        owners.layers[owner] = node.layer
        gone = []
        for line in text.splitlines():
            real = tree.resolve(line)
            if real is None:
                if _SO.search(line) or _PROGRAM.match(line):
                    gone.append(line)
            elif real not in owners.paths and not tree.nodes.get(real, node).entry.is_folder:
                owners.paths[real] = owner
            owners.paths.setdefault(line, owner)
        if gone:
            lost = max(max(tree.lost(path), tree.lost(_merged(tree, path))) for path in gone)
            losses.append(_loss(owner, gone, lost))
    return tuple(sorted(found, key=lambda p: (p.name, p.architecture)))


def _merged(tree: Tree, path: str) -> str:
    """A path with the links of its folder followed."""
    folder, _, name = path.rpartition("/")
    return f"{tree.resolve(folder) or folder}/{name}"


def _first_listed(tree: Tree) -> dict[str, int]:
    """The lowest layer in whose list of packages each name is."""
    first: dict[str, int] = {}
    for number, layer in enumerate(tree.layers):
        texts = [text for path, text in layer.texts.items() if path.startswith(_STATUS)]
        for name, *_ in _status(texts):
            first.setdefault(name, number)
    return first


def _status_texts(tree: Tree) -> list[str]:
    paths = [path for path in tree.nodes if path.startswith(_STATUS) and not path.endswith(".md5sums")]
    return [tree.text(path) or "" for path in sorted(paths)]


def _status(texts: Iterable[str]) -> Iterator[tuple[str, str, str, bool]]:
    """Name, version and architecture of every installed package, and whether it may be there for several."""
    for paragraph in (part for text in texts for part in text.split("\n\n")):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] not in " \t")
        if "Package" in fields and "installed" in fields.get("Status", "install ok installed").split():
            yield (
                fields["Package"],
                fields.get("Version", ""),
                fields.get("Architecture", ""),
                fields.get("Multi-Arch") == "same",
            )


def _torch(tree: Tree, lock: LockedImage) -> tuple[str, str]:
    """torch/version.py's version and CUDA."""
    text = tree.text(f"{_site(lock)}/torch/version.py")
    if text is None:
        return "", ""
    values = {m.group(0).split("=")[0].split(":")[0].strip(): m.group(1) for m in _TORCH.finditer(text)}
    cuda = values.get("cuda", "").strip()
    return values.get("__version__", ""), "" if cuda == "None" else cuda


def _libraries(tree: Tree, owners: _Owners) -> tuple[facts.Library, ...]:
    found = []
    for path, node in tree.files():
        elf = tree.layers[node.layer].elfs.get(path)
        if elf is None and node.entry.link:  # a hard link
            elf = tree.layers[node.layer].elfs.get("/" + node.entry.link.removeprefix("./").strip("/"))
        if elf is not None:
            found.append(
                facts.Library(
                    path=path,
                    machine=elf.machine,
                    soname=elf.soname,
                    needed=elf.needed,
                    rpath=elf.rpath,
                    runpath=elf.runpath,
                    sass=elf.sass,
                    ptx=elf.ptx,
                    owner=owners.of(path),
                    layer=node.layer,
                )
            )
    return tuple(sorted(found, key=lambda lib: lib.path))


def _links(tree: Tree) -> tuple[tuple[str, str], ...]:
    found = []
    for path, node in tree.nodes.items():
        if node.entry.kind == "2" and ".so" in path.rpartition("/")[2]:
            real = tree.resolve(path)
            if real is not None and real in tree.nodes and tree.nodes[real].entry.is_file:
                found.append((path, real))
    return tuple(sorted(found))


def _loader(tree: Tree) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """The folders of /etc/ld.so.conf, those that the loader's cache leads to, and the layer that set them last."""
    folders: list[str] = []
    _conf(tree, "/etc/ld.so.conf", folders, set())
    node = tree.nodes.get("/etc/ld.so.cache")
    cache = (tree.layers[node.layer].cache or ()) if node is not None else ()
    parts = [n.layer for p, n in tree.nodes.items() if p == "/etc/ld.so.cache" or p.startswith("/etc/ld.so.conf")]
    real = tuple(dict.fromkeys(tree.resolve(folder) or folder for folder in cache))
    return tuple(dict.fromkeys(folders)), real, max(parts, default=-1)


def _conf(tree: Tree, path: str, folders: list[str], seen: set[str]) -> None:
    text = tree.text(path)
    if text is None or path in seen:
        return
    seen.add(path)
    for line in (raw.split("#")[0].strip() for raw in text.splitlines()):
        if line.startswith("include"):
            pattern = line.removeprefix("include").strip()
            pattern = pattern if pattern.startswith("/") else f"/etc/{pattern}"
            matching = re.compile(re.escape(pattern).replace(r"\*", "[^/]*") + "$")
            for each in sorted(p for p in tree.nodes if matching.match(p)):
                _conf(tree, each, folders, seen)
        elif line:
            folders.append(tree.resolve(line) or line)


def _wanted(tree: Tree, lock: LockedImage) -> tuple[tuple[str, ...], tuple[facts.Spot, ...]]:
    present, missing = [], []
    fill = {"python": lock.image.python, "lib": f"/usr/lib/{_MULTIARCH[lock.image.arch]}"}
    for name, places in WANTED.items():
        paths = [place.format(**fill) for place in places]
        if any(tree.at(path) is not None for path in paths):
            present.append(name)
        else:
            missing.append(facts.Spot(path=paths[0], layer=max(tree.lost(path) for path in paths), what=name))
    return tuple(present), tuple(missing)


def _moded(tree: Tree, owners: _Owners, base: int, asked: Callable[[Entry], bool]) -> tuple[facts.Spot, ...]:
    """Files with rights that are asked for; those that came so with their package, or with the base, are left out."""
    return tuple(
        facts.Spot(path=path, layer=node.layer, what=f"{node.entry.mode & 0o7777:04o}", owner=owners.of(path))
        for path, node in sorted(tree.nodes.items())
        if asked(node.entry)
        and node.layer >= base
        and not owners.brought(path, node.layer)
        and not path.startswith(_VOLATILE)
    )


def _late(tree: Tree, epoch: int) -> tuple[facts.Sample, ...]:
    paths = {
        n: [e.path for e in x.entries if max(e.mtime, x.later.get(e.path, 0)) > epoch]
        for n, x in enumerate(tree.layers)
    }
    for number, layer in enumerate(tree.layers):
        if layer.written > epoch:
            paths[number].append("(the header of its compressor)")
    return _samples(paths)


def _late_documents(config: Mapping[str, Any], epoch: int) -> tuple[facts.Spot, ...]:
    """Times later than the epoch in the configuration and its history, each with the layer of its step."""
    steps = config.get("history") or []
    layers = [layer for _, layer in _history(steps)]
    told = [(f"history[{n}].created", step.get("created"), layers[n]) for n, step in enumerate(steps)]
    told.append(("created", config.get("created"), layers[-1] if layers else 0))
    return tuple(
        facts.Spot(path=name, layer=layer, what=str(text))
        for name, text, layer in told
        if text and ((at := times.seconds(str(text))) is None or at > epoch)
    )


def _timed(tree: Tree) -> tuple[facts.Sample, ...]:
    paths: dict[int, list[str]] = defaultdict(list)
    for number, layer in enumerate(tree.layers):
        for path in layer.timed:
            if (node := tree.nodes.get(path)) is not None and node.layer == number:
                paths[number].append(path)
    return _samples(paths)


def _samples(paths: dict[int, list[str]]) -> tuple[facts.Sample, ...]:
    return tuple(
        facts.Sample(layer=layer, count=len(found), first=tuple(sorted(found)[:SHOWN]))
        for layer, found in sorted(paths.items())
        if found
    )


def _secrets(tree: Tree, owners: _Owners) -> tuple[facts.Spot, ...]:
    found = []
    for number, layer in enumerate(tree.layers):
        for path, what in layer.secrets.items():
            if not owners.brought(path, number):
                hidden = _hidden(tree, path, number)
                found.append(facts.Spot(path=path, layer=number, what=what, hidden=hidden, owner=owners.of(path)))
    return tuple(found)


def _addresses(tree: Tree, owners: _Owners, base: int) -> tuple[facts.Spot, ...]:
    """Hosts that files of configuration name, in every layer but the base's."""
    found = []
    for number, layer in enumerate(tree.layers):
        for path, hosts in layer.hosts.items():
            if number >= base and not owners.brought(path, number):
                hidden = _hidden(tree, path, number)
                found.append(facts.Spot(path=path, layer=number, what=", ".join(hosts), hidden=hidden))
    return tuple(found)


def _certificates(tree: Tree, owners: _Owners) -> tuple[facts.Spot, ...]:
    """Certificate authorities that the distribution's package did not bring."""
    theirs = owners.layers.get("os ca-certificates", -1)
    found = []
    for path, node in sorted(tree.nodes.items()):
        if not path.startswith(_CERTIFICATES) or node.entry.is_folder:
            continue
        real = tree.resolve(path) or node.entry.link
        fine = node.layer <= theirs and (not path.startswith(_CERTIFICATES[0]))
        if not fine and not real.startswith(_BUNDLED):
            found.append(facts.Spot(path=path, layer=node.layer, what=real if real != path else ""))
    return tuple(found)


def _shadows(tree: Tree) -> tuple[facts.Spot, ...]:
    """Folders beside the environment's own from which Python would import, with what is in them."""
    pattern = re.compile(
        r"^(?P<site>(?:/root|/home/[^/]+|/nonexistent)?/\.local/lib/python[0-9.]+/site-packages|"
        r"/usr/local/lib/python[0-9.]+/(?:dist|site)-packages)/(?P<name>[^/]+)"
    )
    inside: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, node in tree.nodes.items():
        if (match := pattern.match(path)) and not match["name"].startswith("__pycache__"):
            inside[match["site"]].append((match["name"], node.layer))
    return tuple(
        facts.Spot(path=site, layer=max(layer for _, layer in names), what=_names([name for name, _ in names]))
        for site, names in sorted(inside.items())
    )


def _strays(tree: Tree, lock: LockedImage, owners: _Owners) -> tuple[facts.Spot, ...]:
    """What Python would load from the environment's own folder that no distribution has there."""
    site = _site(lock) + "/"
    inside: dict[int, list[str]] = defaultdict(list)
    for path, node in tree.files():
        if path.startswith(site) and path.endswith((".py", ".pth", ".so")) and path not in owners.paths:
            inside[node.layer].append(path.removeprefix(site).partition("/")[0])
    return tuple(
        facts.Spot(path=site.rstrip("/"), layer=layer, what=f"{_names(names)} of no distribution")
        for layer, names in sorted(inside.items())
    )


def _site(lock: LockedImage) -> str:
    return f"/{render.ENVIRONMENT}/lib/python{lock.image.python}/site-packages"


def _names(names: list[str]) -> str:
    modules = sorted({name.removesuffix(".py") for name in names if not name.endswith((".dist-info", ".egg-info"))})
    more = len(modules) - SHOWN
    return ", ".join(modules[:SHOWN]) + (f" and {more} more" if more > 0 else "")
