"""What is taken over from the user's pip, and what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchyard.errors import InputError
from torchyard.world import pipconf

DEBUG = """\
env_var:
  PIP_CERT='/etc/ca.pem'
env:
  /ci/pip.conf, exists: True
    global.timeout: 9
global:
  /etc/xdg/pip/pip.conf, exists: True
    global.constraint: /etc/xdg/pip/constraints.txt
  /etc/pip.conf, exists: True
site:
  /venv/pip.conf, exists: True
user:
  /home/me/.pip/pip.conf, exists: False
  /home/me/.config/pip/pip.conf, exists: True
    global.extra-index-url: https://a/simple
https://b/simple
"""


def made(**values: str) -> pipconf.PipSettings:
    given = {name.replace("_", "-"): value for name, value in values.items()}
    return pipconf.settings(given, default_index="https://default/simple", home=Path("/home/me"), cwd=Path("/here"))


def test_files_are_ordered_as_they_win_not_as_pip_prints_them() -> None:
    assert [str(path) for path in pipconf.files_named(DEBUG)] == [
        "/etc/xdg/pip/pip.conf",
        "/etc/pip.conf",
        "/home/me/.pip/pip.conf",
        "/home/me/.config/pip/pip.conf",
        "/venv/pip.conf",
        "/ci/pip.conf",
    ]


def test_where_pip_is_told_to_read_no_file_none_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pip" / "pip.conf"
    file.parent.mkdir()
    file.write_text("[global]\nfind-links = /wheels\nindex-url = https://mine/simple\n")
    for name in [name for name in os.environ if name.startswith(("PIP_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path))
    assert pipconf.read().find_links == ("/wheels",)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert pipconf.read().find_links == ()
    assert pipconf.read().index_url not in ("", "https://mine/simple")


def test_without_an_index_the_default_one_is_asked() -> None:
    assert made().index_url == "https://default/simple"
    assert made(index_url="https://mine/simple").index_url == "https://mine/simple"


def test_no_index_leaves_only_the_directories() -> None:
    given = made(no_index="true", index_url="https://mine", extra_index_url="https://more", find_links="/wheels")
    assert (given.index_url, given.extra_index_urls, given.find_links) == ("", (), ("/wheels",))


def test_lists_are_split_and_paths_made_absolute() -> None:
    given = made(
        extra_index_url="https://a/simple\nhttps://b/simple https://a/simple",
        find_links="wheels ~/more https://c/page.html file:///disk",
        trusted_host="a\nb:8443",
        cert="ca.pem",
    )
    assert given.extra_index_urls == ("https://a/simple", "https://b/simple")
    assert given.find_links == ("/here/wheels", "/home/me/more", "https://c/page.html", "file:///disk")
    assert given.trusted_hosts == ("a", "b:8443")
    assert given.cert == "/here/ca.pem"


def test_sections_win_as_pip_reads_them_and_the_rest_is_not_taken_over() -> None:
    text = """
[install]
index-url = https://install/simple
pre = true
target = /somewhere
[global]
index_url = https://global/simple
constraint = /etc/constraints.txt
require-virtualenv = true
user = yes
timeout = 60
retries = 2
"""
    assert pipconf.from_text(text, "pip.conf") == {
        "index-url": "https://install/simple",
        "timeout": "60",
        "retries": "2",
    }


def test_the_environment_gives_the_same_options_under_other_names() -> None:
    assert pipconf.from_environment(
        {
            "PIP_DEFAULT_TIMEOUT": "180",
            "PIP_FIND_LINKS": "/wheels",
            "PIP_CONSTRAINT": "/c.txt",
            "PIP_PRE": "1",
            "PIP_INDEX_URL": "",
            "OTHER": "x",
        }
    ) == {"timeout": "180", "find-links": "/wheels"}


def test_numbers_are_those_of_pip_unless_set() -> None:
    assert (made().timeout, made().retries) == (15.0, 5)
    assert (made(timeout="180", retries="0").timeout, made(retries="0").retries) == (180.0, 0)
    with pytest.raises(InputError, match="timeout is 'soon', which is not a number"):
        made(timeout="soon")


def test_a_broken_file_is_told_with_its_name() -> None:
    with pytest.raises(InputError) as caught:
        pipconf.from_text("index-url = x\n", "/etc/pip.conf")
    assert caught.value.where == "/etc/pip.conf"
    assert caught.value.hint


def test_the_bundle_of_pip_wins_over_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/environment.pem")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    session = pipconf.session(made(cert="/pip.pem", proxy="http://proxy:3128"))
    merged = session.merge_environment_settings("https://a/", {}, True, None, None)
    assert merged["verify"] == "/pip.pem"
    assert merged["proxies"] == {"http": "http://proxy:3128", "https": "http://proxy:3128"}
    monkeypatch.setenv("NO_PROXY", "a")
    assert session.merge_environment_settings("https://a/", {}, True, None, None)["proxies"] == {}
    session = pipconf.session(made())
    assert session.merge_environment_settings("https://a/", {}, True, None, None)["verify"] == "/environment.pem"


def test_only_a_trusted_host_is_reached_without_a_certificate() -> None:
    session = pipconf.session(made(trusted_host="trusted.example other.example:8443"))
    adapters = {
        url: type(session.get_adapter(url)).__name__
        for url in (
            "https://trusted.example/simple/",
            "https://trusted.example:9443/simple/",
            "https://other.example:8443/x",
            "https://other.example/x",
            "https://trusted.example.evil/x",
        )
    }
    assert list(adapters.values()) == ["_Trusting", "_Trusting", "_Trusting", "HTTPAdapter", "HTTPAdapter"]
