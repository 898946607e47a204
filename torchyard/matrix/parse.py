"""The text of env.yaml as a Matrix, or every mistake in it in one go."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from torchyard import consumers, errors, yaml_source
from torchyard.matrix import fragment, keys, variables
from torchyard.matrix.shape import BAD, Known, Reader
from torchyard.matrix.values import AUTO, Allow, Budget, Hardware, Matrix, Site, Software, Source, WantedCell
from torchyard.plan import Base, BaseKind, BuildKind, Compression, PackageSet
from torchyard.yaml_source import Scalar, nearest, quote

MAX_CELLS = 1000
UNNAMED = "*"  # a package set that is not the default and has no name given: the resolver names it by a hash
_FROM_REF = (
    (re.compile(r"(?:.*/)?debian:(?:(\d+)(?:[.-].*)?)(?:@.*)?"), "debian-{}"),
    (re.compile(r"(?:.*/)?ubuntu:(\d\d\.\d\d)(?:[.-].*)?(?:@.*)?"), "ubuntu-{}"),
    (re.compile(r"(?:.*/)?debian:(bullseye|bookworm|trixie)\b.*"), "{}"),
    (re.compile(r"(?:.*/)?ubuntu:(bionic|focal|jammy|noble|resolute)\b.*"), "{}"),
)
_CODENAMES = {
    "bullseye": "debian-11", "bookworm": "debian-12", "trixie": "debian-13", "bionic": "ubuntu-18.04",
    "focal": "ubuntu-20.04", "jammy": "ubuntu-22.04", "noble": "ubuntu-24.04", "resolute": "ubuntu-26.04",
}  # fmt: skip


def know_all(kind: str, name: str) -> tuple[str, str] | None:
    """Take every name as known; only what depends on no catalogue is refused."""
    if kind == "march" and name == "native":
        return "native depends on the machine that builds", "name it: x86-64-v3"
    return None


def read_bytes_checked(data: bytes, name: str = "env.yaml") -> str:
    """The text of the file's bytes, or one error: too large, not UTF-8."""
    return yaml_source.decode(data, name)


def needed_files(text: str) -> tuple[str, ...]:
    """The files beside env.yaml that it names and `parse` wants, sorted; what is wrong in it is left to `parse`."""
    root, source = yaml_source.read(text, "env.yaml")
    if not isinstance(root, yaml_source.Mapping):
        return ()
    reader = Reader(text=source, known=know_all)
    values = keys.FILE.read(root, "", reader)
    if values is BAD:
        return ()
    blocks = [values, *values.get("hardware", {}).values()]
    pips = (block.get("packages", {}).get("pip") for block in blocks)
    found = {v for v in (*pips, *(block.get("extend") for block in blocks)) if isinstance(v, str)}
    return tuple(sorted(found))


def parse(
    text: str, *, name: str = "env.yaml", files: Mapping[str, str | None] | None = None, known: Known = know_all
) -> Matrix:
    """The matrix that this text says; raises all its mistakes at once.

    files: the text of each file of `needed_files`, None where it cannot be read. known: who knows the names of GPUs,
    distributions and rules (resolve.names makes one of a catalogue).
    """
    root, source = yaml_source.read(text, name)
    reader = Reader(text=source, known=known)
    if root is None or (isinstance(root, Scalar) and root.kind == "null"):
        if not source.found:
            source.problem(
                yaml_source.Mark(line=1, col=1), "the file is empty", hint="torchyard init writes a first one"
            )
        errors.raise_all(source.problems())
    assert root is not None
    values = keys.FILE.read(root, "", reader)
    made = None if values is BAD else _Maker(values, reader, files or {}).matrix()
    errors.raise_all(source.problems())
    assert made is not None
    return made


class _Maker:
    """Makes the matrix of the values read; what does not fit together is told like every other mistake."""

    def __init__(self, values: dict[str, Any], reader: Reader, files: Mapping[str, str | None]) -> None:
        self.values = values
        self.reader = reader
        self.files = files
        self.entries: dict[str, dict[str, Any]] = values.get("hardware", {})
        self.software: dict[str, Any] = values.get("software", {})
        self.axes: dict[str, tuple[Any, ...]] = {
            axis: choices for axis, choices in values.get("matrix", {}).items() if axis in keys.AXES and choices
        }

    def tell(self, path: str, what: str, hint: str = "") -> None:
        self.reader.problem(self.reader.at(path), path, what, hint)

    def matrix(self) -> Matrix:
        """The whole file."""
        self._bases()
        self._env("", self.values.get("env", {}))
        sites = tuple(Site(name=name, **given) for name, given in self.values.get("sites", {}).items())
        packages = self._packages("", self.values)
        hardware = tuple(self._hardware(name, given) for name, given in self.entries.items())
        return Matrix(
            project=self.values.get("project", ""),
            sites=sites,
            hardware=hardware,
            cells=self._cells(hardware, packages),
            allow=tuple(self._allow()),
            packages=packages,
            lines=self.reader.text.lines,
            places=MappingProxyType(
                {path: f"{self.reader.text.name}:{m.line}:{m.col}" for path, m in self.reader.places.items()}
            ),
        )

    # -- names that have to be there ------------------------------------------------------------------------------

    def _refer(self, path: str, name: str, names: Iterable[str], what: str) -> None:
        names = tuple(names)
        if name not in names:
            listed = f"there is {', '.join(names)}" if names else f"the file has no {what}"
            self.tell(path, f"no {what} is called {quote(name)}", f"{nearest(name, names)} {listed}".strip())

    def _allow(self) -> Iterator[Allow]:
        for number, given in enumerate(self.values.get("allow", ())):
            path = f"allow[{number}]"
            image, hardware = given.get("image", ""), given.get("hardware", "")
            if not image and not hardware:
                self.tell(
                    path, "it names neither image nor hardware", "say where the rule is overruled: add hardware: NAME"
                )
            if hardware:
                self._refer(f"{path}.hardware", hardware, self.entries, "hardware entry")
            if "rule" in given and "reason" in given:
                yield Allow(rule=given["rule"], image=image, hardware=hardware, reason=given["reason"], path=path)

    # -- base -----------------------------------------------------------------------------------------------------

    def _bases(self) -> None:
        """Tell what does not fit together in any base of the file."""
        places = [("software.base", self.software.get("base"))]
        places += [(f"hardware.{name}.base", given.get("base")) for name, given in self.entries.items()]
        places += [(f"matrix.base[{n}]", base) for n, base in enumerate(self.axes.get("base", ()))]
        for rows in ("include", "exclude"):
            given = self.values.get("matrix", {}).get(rows, ())
            places += [(f"matrix.{rows}[{n}].base", row.get("base")) for n, row in enumerate(given)]
        for path, base in places:
            if base:
                self._base_problems(path, base)

    def _base_problems(self, path: str, base: dict[str, str]) -> None:
        ref = base.get("ref", "")
        match base.get("from"):
            case "archive":
                if ref:
                    self.tell(
                        f"{path}.ref", "a base from the archive has no ref", "write from: image, or leave ref out"
                    )
                if "os" not in base and not self._broken(path):
                    self.tell(path, "the base does not say its distribution", "add os: debian-12")
            case "image":
                if not ref and not self._broken(path):
                    self.tell(path, "the base does not say its image", "add ref: debian:12-slim")
                elif ref:
                    self._ref_problems(path, base, ref)

    def _ref_problems(self, path: str, base: dict[str, str], ref: str) -> None:
        tag = ref.partition("@")[0].rpartition("/")[2].partition(":")[2]
        if (not tag and "@" not in ref) or tag in ("latest", "stable", "testing", "unstable", "rolling", "devel"):
            self.tell(f"{path}.ref", f"{quote(ref)} is a moving tag", "name a release, for example debian:12-slim")
            return
        if "os" in base:
            return
        if (os := _os_of(ref)) is None:
            self.tell(
                path, f"{quote(ref)} does not say its distribution", "add os: debian-12 (the one it is made from)"
            )
        elif (complaint := self.reader.complaint("os", os)) is not None:
            self.tell(f"{path}.ref", *complaint)

    def _broken(self, path: str) -> bool:
        """Whether a mistake was told inside this path already."""
        return any(p.where.partition("  ")[2].startswith(path + ".") for p in self.reader.text.found)

    # -- one entry ------------------------------------------------------------------------------------------------

    def _hardware(self, name: str, given: dict[str, Any]) -> Hardware:
        path = f"hardware.{name}"
        gpu = given.get("gpu", ())
        site = given.get("site", "")
        if site:
            self._refer(f"{path}.site", site, self.values.get("sites", {}), "site")
        if "gpu" not in given:
            for key in ("count", "memory_gb", "mig", "driver", "cuda", "cudnn"):
                if key in given and not self._broken(path):
                    self.tell(
                        f"{path}.{key}",
                        f"{key} belongs to a GPU and this entry has none",
                        f"add gpu:, or leave {key} out",
                    )
        self._env(path, given.get("env", {}))
        sites = self.values.get("sites", {})
        return Hardware(
            name=name,
            gpus=(gpu,) if isinstance(gpu, str) else gpu,
            count=given.get("count", 1),
            memory_gb=given.get("memory_gb"),
            mig=given.get("mig", ""),
            arch=given.get("arch", "x86_64"),
            site=site,
            driver=given.get("driver", sites.get(site, {}).get("driver", "")) if gpu else "",
            shm=given.get("shm", ""),
            budget=_budget({**self.values.get("budget", {}), **given.get("budget", {})}),
            consumers=_consumers(sites.get(site)),
        )

    def _env(self, path: str, env: dict[str, str | None]) -> None:
        for name, value in env.items():
            place = f"{path}.env.{name}" if path else f"env.{name}"
            if (wrong := variables.complaint(name, value)) is not None:
                self.tell(place, *wrong)

    def _packages(self, path: str, given: dict[str, Any]) -> PackageSet:
        """The package set of the file (empty path) or of an entry, over the file's."""
        prefix = f"{path}." if path else ""
        packages = {**self.values.get("packages", {}), **given.get("packages", {})}
        env = {**self.values.get("env", {}), **given.get("env", {})}
        extend = given.get("extend", self.values.get("extend"))
        own = {key for key in ("apt", "pip") if key in given.get("packages", {})}
        return PackageSet(
            name=packages.get("name", ""),
            apt=tuple(sorted(packages.get("apt", ()))),
            pip=self._pip(f"{prefix if 'pip' in own else ''}packages.pip", packages.get("pip", ())),
            env=tuple(sorted((k, v) for k, v in env.items() if v is not None)),
            extend=self._extend(f"{prefix if 'extend' in given else ''}extend", extend),
        )

    def _file(self, path: str, name: str) -> str | None:
        if (text := self.files.get(name)) is None:
            self._once(path, f"the file {quote(name)} is not there, or cannot be read", "a UTF-8 file beside env.yaml")
        return text

    def _once(self, path: str, what: str, hint: str) -> None:
        mark = self.reader.at(path)
        if all(p.what != what or p.mark != mark for p in self.reader.text.found):
            self.tell(path, what, hint)

    def _pip(self, path: str, given: str | tuple[str, ...]) -> tuple[str, ...]:
        if not given:
            return ()
        from torchyard import requirements

        if isinstance(given, str):
            text = self._file(path, given)
            try:
                return requirements.parse_requirements(text or "", given)
            except errors.YardError as error:
                for each in error.problems():
                    self._outside(each)
                return ()
        found = set()
        for number, line in enumerate(given):
            try:
                found.add(str(requirements.parse_requirement(line.strip(), "")))
            except errors.YardError as error:
                self._once(f"{path}[{number}]", error.what, error.hint)
        return tuple(sorted(found, key=str.lower))

    def _extend(self, path: str, given: str | None) -> str:
        if not given or (text := self._file(path, given)) is None:
            return ""
        for number, what, hint in fragment.problems(text):
            self._outside(errors.InputError(what, where=f"{given}:{number}", hint=hint))
        return text if text.endswith("\n") else text + "\n"

    def _outside(self, error: errors.YardError) -> None:
        """Tell a mistake of another file, once, after those of this one."""
        last = yaml_source.Mark(line=len(self.reader.text.lines) + 1, col=1)
        found = self.reader.text.found
        if len(found) < yaml_source.MAX_PROBLEMS and all((p.what, p.where) != (error.what, error.where) for p in found):
            found.append(yaml_source.Located(error.what, where=error.where, hint=error.hint, mark=last))

    # -- cells ----------------------------------------------------------------------------------------------------

    def _cells(self, hardware: tuple[Hardware, ...], default: PackageSet) -> tuple[WantedCell, ...]:
        rows = self.values.get("matrix", {})
        for number, row in enumerate((*rows.get("include", ()), *rows.get("exclude", ()))):
            kind, at = (
                ("include", number)
                if number < len(rows.get("include", ()))
                else ("exclude", number - len(rows.get("include", ())))
            )
            if "hardware" in row:
                self._refer(f"matrix.{kind}[{at}].hardware", row["hardware"], self.entries, "hardware entry")
        self._exclude_values(rows.get("exclude", ()))
        sizes = [self._size(given) for given in self.entries.values()]
        if sum(sizes) > MAX_CELLS:
            self.tell(
                "matrix",
                f"the matrix has {sum(sizes):,} cells; the limit is {MAX_CELLS:,}",
                "take values out of the axes",
            )
            return ()
        sets: dict[str, PackageSet] = {}
        cells: list[WantedCell] = []
        for entry in hardware:
            packages = self._entry_set(entry.name, default, sets)
            found = list(self._entry_cells(entry, packages))
            if not found:
                self.tell(f"hardware.{entry.name}", "exclude leaves this entry without a cell", "narrow matrix.exclude")
            cells += [replace(cell, default=number == 0) for number, cell in enumerate(found)]
        return tuple(cells)

    def _size(self, given: dict[str, Any]) -> int:
        size = 1
        for axis, values in self.axes.items():
            size *= 1 if axis in given else len(values)
        return size

    def _exclude_values(self, rows: tuple[dict[str, Any], ...]) -> None:
        """Tell an exclude that can match nothing because of a value that no axis has."""
        for number, row in enumerate(rows):
            for axis, value in row.items():
                if axis == "hardware":
                    continue
                given = [
                    *self.axes.get(axis, ()),
                    self.software.get(axis),
                    *(e.get(axis) for e in self.entries.values()),
                ]
                if value not in given:
                    path = f"matrix.exclude[{number}].{axis}"
                    self.tell(path, f"no cell has {axis} {_axis_text(axis, value)}", "write a value of the axis")

    def _entry_set(self, name: str, default: PackageSet, sets: dict[str, PackageSet]) -> PackageSet:
        path = f"hardware.{name}"
        given = self.entries[name]
        if not given.keys() & {"packages", "env", "extend"}:
            return default
        made = self._packages(path, given)
        if replace(made, name="") == default:
            return default
        if not made.name:
            return replace(made, name=UNNAMED)
        if re.fullmatch(r"[0-9a-f]{8}", made.name):
            self.tell(f"{path}.packages.name", f"{quote(made.name)} looks like a hash", "choose another name")
        if sets.setdefault(made.name, made) != made:
            what = f"the name {quote(made.name)} stands for another set of packages above"
            self.tell(f"{path}.packages.name", what, "give each set its own name")
        return made

    def _entry_cells(self, entry: Hardware, packages: PackageSet) -> Iterator[WantedCell]:
        given = self.entries[entry.name]
        rows = self.values.get("matrix", {})
        axes = {axis: (given[axis],) if axis in given else values for axis, values in self.axes.items()}
        seen: list[dict[str, Any]] = []
        for values in itertools.product(*axes.values()):
            picked = dict(zip(axes, values, strict=True))
            effective = {**self.software, **given, **picked}
            if not any(self._matches(row, entry.name, effective) for row in rows.get("exclude", ())):
                seen.append(picked)
        first = seen[0] if seen else {axis: values[0] for axis, values in axes.items()}
        for row in rows.get("include", ()):
            more = {**first, **{k: v for k, v in row.items() if k != "hardware"}}
            if row.get("hardware") == entry.name and more not in seen:
                seen.append(more)
        for picked in seen:
            yield self._cell(entry, packages, given, picked)

    @staticmethod
    def _matches(row: dict[str, Any], name: str, effective: dict[str, Any]) -> bool:
        return all(value == (name if key == "hardware" else effective.get(key)) for key, value in row.items())

    def _cell(self, entry: Hardware, packages: PackageSet, given: dict[str, Any], picked: dict[str, Any]) -> WantedCell:
        software = {**self.software, **given, **picked}
        path = f"hardware.{entry.name}"
        if (
            "torch" not in software
            and not self._broken("software")
            and not self._broken(path)
            and not self.reader.text.unread
        ):
            self._once(path, "no torch release is given for this entry", 'add torch: "2.14.1" under software')
        return WantedCell(
            hardware=entry,
            software=_software(software, gpu=bool(entry.gpus)),
            source=_source({**self.values.get("source", {}), **given.get("source", {})}, self.values.get("source", {})),
            packages=packages,
            choice=tuple((axis, _axis_text(axis, value)) for axis, value in picked.items()),
            default=False,
            path=path,
        )


def _os_of(ref: str) -> str | None:
    for pattern, os in _FROM_REF:
        if match := pattern.fullmatch(ref):
            found = os.format(match[1])
            return _CODENAMES.get(found, found)
    return None


def _consumers(site: dict[str, str] | None) -> tuple[str, ...]:
    return () if site is None else consumers.of_site(site.get("runs", "compose"), site.get("consumer", ""))


def _budget(given: dict[str, str]) -> Budget:
    return Budget(**{key: _bytes(size) for key, size in given.items()})


def _bytes(size: str) -> int:
    """The bytes of `4 GB`, in powers of ten."""
    number, unit = size[:-2].strip(), size[-2:]
    return round(float(number) * {"MB": 10**6, "GB": 10**9, "TB": 10**12}[unit])


def _base(given: dict[str, str]) -> Base:
    if given.get("from") == "image":
        ref = given.get("ref", "")
        return Base(kind=BaseKind.IMAGE, os=given.get("os") or _os_of(ref) or "", ref=ref)
    return Base(kind=BaseKind.ARCHIVE, os=given.get("os", "debian-12"))


def _software(given: dict[str, Any], *, gpu: bool) -> Software:
    python = given.get("python", AUTO)
    version, python_from = (
        (python, "distribution")
        if isinstance(python, str)
        else (python.get("version", AUTO), python.get("from", "distribution"))
    )
    return Software(
        base=_base(given.get("base", {})),
        python=version,
        python_from=python_from,
        torch=given.get("torch", ""),
        torchvision=given.get("torchvision", ""),
        torchaudio=given.get("torchaudio", ""),
        cuda=given.get("cuda", AUTO) if gpu else "cpu",
        cudnn=given.get("cudnn", AUTO) if gpu else AUTO,
        blas=given.get("blas", AUTO),
        build=BuildKind(given.get("build", "wheel")),
        compression=Compression(given.get("compression", "gzip")),
    )


def _source(given: dict[str, Any], default: dict[str, Any]) -> Source:
    flags = {**default.get("flags", {}), **given.get("flags", {})}
    return Source(
        ref=given.get("ref", ""),
        commit=given.get("commit", ""),
        archive=given.get("archive", ""),
        flags=tuple(sorted(flags.items())),
        cpu=given.get("cpu", ""),
        arch_list=given.get("arch_list", ()),
        gcc=given.get("gcc"),
        jobs=given.get("jobs"),
    )


def _axis_text(axis: str, value: Any) -> str:
    """A value of an axis as it is shown: `debian-12`, `image debian:12-slim`, `3.12 standalone`."""
    if axis == "base":
        return str(value.get("os", "")) if value.get("from") == "archive" else f"image {value.get('ref', '')}"
    if isinstance(value, dict):
        origin = value.get("from", "distribution")
        return str(value.get("version", "")) + ("" if origin == "distribution" else f" {origin}")
    return str(value)
