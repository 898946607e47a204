"""Finding an engine, and what a private one is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchyard.errors import InputError
from torchyard.world import engine, engine_client, engine_home, engine_private, engine_root
from torchyard.world.engine import Address
from torchyard.world.engine_home import Home
from torchyard.world.engine_net import Net

HOME = Home(path=Path("/home/me/.cache/torchyard/engine"))


def hosts(environment: dict[str, str], context: Address | None = None) -> list[str]:
    return [address.host for address in engine.addresses(environment, context)]


def test_the_address_that_the_user_names_is_the_only_one() -> None:
    context = Address(host="tcp://other:2376", why="the docker context 'other'")
    assert hosts({"DOCKER_HOST": "ssh://build", "HOME": "/home/me"}, context) == ["ssh://build"]


def test_a_named_address_keeps_its_certificates() -> None:
    environment = {"DOCKER_HOST": "tcp://b:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/certs"}
    (address,) = engine.addresses(environment, None)
    assert address.env == environment


def test_a_context_comes_before_the_sockets() -> None:
    context = Address(host="unix:///run/other.sock", why="the docker context 'other'")
    assert hosts({"HOME": "/home/me", "XDG_RUNTIME_DIR": "/run/user/1000"}, context) == [
        "unix:///run/other.sock",
        "unix:///var/run/docker.sock",
        "unix:///run/user/1000/docker.sock",
        "unix:///home/me/.docker/run/docker.sock",
        "unix:///home/me/.docker/desktop/docker.sock",
    ]


def test_the_home_is_where_the_user_says_else_in_the_cache_directory() -> None:
    assert engine_home.home_of({"HOME": "/home/me"}).path == HOME.path
    assert engine_home.home_of({"HOME": "/home/me", "XDG_CACHE_HOME": "/c"}).path == Path("/c/torchyard/engine")
    chosen = {"HOME": "/home/me", "XDG_CACHE_HOME": "/c", "TORCHYARD_ENGINE_HOME": "/e"}
    assert engine_home.home_of(chosen).path == Path("/e")


@pytest.mark.parametrize("path", ["/a b", "/a:b", "/a,b", "/a'b", "/" + "x" * 200])
def test_a_home_that_cannot_work_is_refused_with_the_way_out(path: str) -> None:
    with pytest.raises(InputError) as caught:
        engine_home.home_of({"TORCHYARD_ENGINE_HOME": path})
    assert "TORCHYARD_ENGINE_HOME" in caught.value.where
    assert caught.value.hint


def test_a_private_engine_leaves_the_packet_filter_and_docker0_alone() -> None:
    config = engine_private.daemon_config(HOME, Net(index=7), 1400)
    assert config["iptables"] is False
    assert config["ip6tables"] is False
    assert config["bridge"] == "torchyard7"
    assert config["live-restore"] is True  # else dockerd deletes docker0 when it starts on old data
    assert config["hosts"] == [HOME.docker_host]
    assert config["mtu"] == 1400


def test_everything_of_a_private_engine_is_in_its_home_or_in_its_own_mounts() -> None:
    config = engine_private.daemon_config(HOME, Net(index=7), 1500)
    for name in ("data-root", "exec-root", "pidfile"):
        assert str(config[name]).startswith((str(HOME.path), "/run/docker"))


def test_a_directory_without_an_engine_has_no_processes(tmp_path: Path) -> None:
    assert engine_private.running(Home(path=tmp_path)) is None
    assert not engine_private.answers(tmp_path / "docker.sock")


def test_a_half_made_root_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    (tmp_path / "root" / "usr" / "bin").mkdir(parents=True)
    assert engine_root.made(tmp_path / "root") == ""


def test_packages_that_still_use_lib_of_the_top_are_merged_into_usr(tmp_path: Path) -> None:
    top, usr = tmp_path / "lib", tmp_path / "usr" / "lib"
    (top / "a").mkdir(parents=True)
    (top / "a" / "one").write_text("1")
    (usr / "a").mkdir(parents=True)
    (usr / "a" / "two").write_text("2")
    engine_root._merge(top, usr)
    assert top.is_symlink()
    assert {p.name for p in (top / "a").iterdir()} == {"one", "two"}


def test_apt_works_in_its_own_directory_only() -> None:
    text = engine_root.apt_configuration(Path("/h/apt"), "amd64")
    for name in ("Dir::Cache", "Dir::State", "Dir::State::status", "Dir::Etc::sourceparts"):
        assert f'{name} "/h/apt/' in text
    assert "#clear APT::Update::Post-Invoke-Success;" in text
    assert "Acquire::http" not in text  # the proxy stays the host's


def test_the_users_logins_are_kept_and_his_context_is_not() -> None:
    user = {"auths": {"r.example.com": {"auth": "u"}}, "currentContext": "far", "credsStore": "pass"}
    own = {"auths": {"r.example.com": {"auth": "old"}, "s.example.com": {"auth": "o"}}}
    config = engine_client.merged(user, own, "/plugins")
    assert config["auths"] == {"r.example.com": {"auth": "u"}, "s.example.com": {"auth": "o"}}
    assert config["credsStore"] == "pass"
    assert "currentContext" not in config
    assert config["cliPluginsExtraDirs"] == ["/plugins"]


def test_the_users_own_plugins_come_after_ours() -> None:
    config = engine_client.merged({"cliPluginsExtraDirs": ["/mine", "/plugins"]}, {}, "/plugins")
    assert config["cliPluginsExtraDirs"] == ["/plugins", "/mine"]


def test_the_client_is_set_up_once_and_then_left_as_it_is(tmp_path: Path) -> None:
    plugins = tmp_path / "root" / "usr" / "libexec" / "docker" / "cli-plugins"
    plugins.mkdir(parents=True)
    (plugins / "docker-buildx").touch()
    home = tmp_path / "user"
    (home / ".docker").mkdir(parents=True)
    (home / ".docker" / "config.json").write_text('{"auths": {"r.example.com": {"auth": "secret"}}}')
    made = engine_client.install(tmp_path / "root", tmp_path / "client", {"HOME": str(home)})
    file = made.config / "config.json"
    assert json.loads(file.read_text())["auths"]
    assert file.stat().st_mode & 0o077 == 0
    assert (made.bin / "docker-buildx").is_symlink()
    before = file.stat().st_ino
    engine_client.install(tmp_path / "root", tmp_path / "client", {"HOME": str(home)})
    assert file.stat().st_ino == before


def test_a_client_configuration_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError) as caught:
        engine_client.install(tmp_path / "root", tmp_path / "client", {"DOCKER_CONFIG": str(tmp_path)})
    assert caught.value.where == str(tmp_path / "config.json")
