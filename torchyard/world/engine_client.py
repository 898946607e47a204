"""The private engine's client: its programs by path, and a configuration that keeps the user's own credentials."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard import json_text
from torchyard.errors import InputError

PLUGIN_FOLDERS = ("usr/libexec/docker/cli-plugins", "usr/lib/docker/cli-plugins")
LEFT_OUT = ("currentContext",)  # the address comes from DOCKER_HOST


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """The docker client of an unpacked root: the program, and the configuration directory that knows its plugins."""

    docker: Path
    config: Path
    bin: Path

    @property
    def buildx(self) -> tuple[str, ...]:
        """The start of a buildx command: the plugin itself, which starts sooner than by docker."""
        plugin = self.bin / "docker-buildx"
        return (str(plugin),) if plugin.exists() else (str(self.docker), "buildx")


def merged(user: Mapping[str, Any], own: Mapping[str, Any], plugins: str) -> dict[str, Any]:
    """The user's client configuration with our plugins; a login made through our client is kept."""
    config = {name: value for name, value in user.items() if name not in LEFT_OUT}
    auths = {**own.get("auths", {}), **user.get("auths", {})}
    if auths:
        config["auths"] = auths
    extra = [folder for folder in user.get("cliPluginsExtraDirs", []) if folder != plugins]
    config["cliPluginsExtraDirs"] = [plugins, *extra]
    return config


def install(root: Path, folder: Path, environment: Mapping[str, str]) -> Client:
    """Have the client's directory up to date: links in `bin`, and `config` made from the user's configuration."""
    plugins = next((root / name for name in PLUGIN_FOLDERS if (root / name).is_dir()), root / PLUGIN_FOLDERS[0])
    client = Client(docker=root / "usr" / "bin" / "docker", config=folder / "config", bin=folder / "bin")
    for part in (client.config, client.bin):
        part.mkdir(parents=True, exist_ok=True)
    for program in (client.docker, *sorted(plugins.glob("docker-*"))):
        link = client.bin / program.name
        if not link.is_symlink() or os.readlink(link) != str(program):
            link.unlink(missing_ok=True)
            link.symlink_to(program)
    user = Path(environment.get("DOCKER_CONFIG") or Path(environment.get("HOME") or "~").expanduser() / ".docker")
    own_file = client.config / "config.json"
    user_file = user / "config.json"
    own = _read(own_file)
    config = merged(own if user_file == own_file else _read(user_file), own, str(plugins))
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    if not own_file.is_file() or own_file.read_text() != text:
        fresh = client.config / f"config.json.{os.getpid()}"
        fresh.touch(mode=0o600)
        fresh.write_text(text)
        os.replace(fresh, own_file)
    return client


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json_text.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as problem:
        raise InputError(
            f"the Docker client's configuration is not JSON: {problem}",
            where=str(path),
            hint="mend it, or name another folder: DOCKER_CONFIG",
        ) from None
    return config if isinstance(config, dict) else {}
