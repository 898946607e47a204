"""What a secret, a proxy or an address looks like in a file, a variable or a step of the history."""

from __future__ import annotations

import re

_LITERALS = (b"PRIVATE KEY-----", b"AKIA", b"ASIA", b"gh", b"hf_", b"glpat-", b"xox", b"npm_", b"sk-", b"pypi-", b"://")
_SECRETS = (
    ("a private key", re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----\s+[A-Za-z0-9+/=:,\s-]{40}")),
    ("an AWS key", re.compile(rb"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])")),
    ("a GitHub token", re.compile(rb"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60})")),
    ("a Hugging Face token", re.compile(rb"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30}")),
    ("a GitLab token", re.compile(rb"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20}")),
    ("a Slack token", re.compile(rb"(?<![A-Za-z0-9])xox[abprs]-[A-Za-z0-9-]{10,}")),
    ("an npm token", re.compile(rb"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}")),
    ("an API key", re.compile(rb"(?<![A-Za-z0-9])sk-(?:proj-|ant-)?[A-Za-z0-9_-]{40,}")),
    ("a PyPI token", re.compile(rb"(?<![A-Za-z0-9])pypi-[A-Za-z0-9_-]{50,}")),
    (
        "credentials in an address",
        re.compile(rb"[a-z][a-z0-9+.-]*://[^\s/:@\"'<>{}$%\[\]()]{1,128}:[^\s/@\"'<>{}$\[\]()]{1,256}@[a-zA-Z0-9.-]"),
    ),
)
_EXAMPLES = re.compile(rb"EXAMPLE|user:pass|username:password|login:password|:secret@|:\*+@|:x+@", re.IGNORECASE)

# Files that are secrets by their names, by the end of the path; what must be in them where the name is not enough.
_NAMED = (
    ("/.netrc", "a .netrc with a password", re.compile(rb"\bpassword\b|\bpasswd\b")),
    ("/_netrc", "a .netrc with a password", re.compile(rb"\bpassword\b")),
    ("/.git-credentials", "git's stored credentials", re.compile(rb"://")),
    ("/.aws/credentials", "AWS credentials", re.compile(rb"aws_secret_access_key|aws_session_token", re.IGNORECASE)),
    ("/.docker/config.json", "a registry login", re.compile(rb"\"(?:auth|identitytoken|password)\"\s*:\s*\"[^\"]")),
    ("/.kube/config", "a cluster login", re.compile(rb"token:|client-key-data:|password:")),
    ("/.pypirc", "a .pypirc with a password", re.compile(rb"password\s*[:=]")),
    ("/.npmrc", "an .npmrc with a token", re.compile(rb"_auth|_password")),
    ("/.huggingface/token", "a Hugging Face token", re.compile(rb"\S")),
    ("/huggingface/token", "a Hugging Face token", re.compile(rb"\S")),
    ("/.config/gh/hosts.yml", "a GitHub login", re.compile(rb"oauth_token")),
    ("/application_default_credentials.json", "a Google Cloud login", re.compile(rb"refresh_token|private_key")),
)

# Files in which people configure mirrors and proxies.
_CONFIG = re.compile(
    r"(?:^/etc/apt/(?:sources\.list|apt\.conf)(?:\.d/.*)?$)|(?:/(?:pip\.conf|\.pip/pip\.conf|uv\.toml|\.condarc"
    r"|\.npmrc|\.wgetrc|\.curlrc|\.gitconfig|\.pydistutils\.cfg)$)|(?:^/etc/(?:environment|wgetrc|gitconfig"
    r"|profile\.d/.*|pip\.conf|uv/uv\.toml)$)|(?:/\.docker/config\.json$)"
)
_PROXY = re.compile(rb"(?:https?_proxy|all_proxy|ftp_proxy|Acquire::https?::Proxy|^\s*proxy\s*=)", re.IGNORECASE | re.M)
_URL = re.compile(rb"(?:[a-z][a-z0-9+.-]*)://([A-Za-z0-9._~%:@\[\]-]+)")

PROXIES = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "rsync_proxy"})
AUTHORITIES = frozenset(
    {"ssl_cert_file", "ssl_cert_dir", "requests_ca_bundle", "curl_ca_bundle", "pip_cert", "node_extra_ca_certs"}
    | {"git_ssl_cainfo", "aws_ca_bundle", "git_ssl_no_verify", "pip_trusted_host", "uv_insecure_host"}
)
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|SECRET_KEY|PRIVATE_KEY|CREDENTIALS?)(?:$|_)", re.I
)
_ASSIGNED = re.compile(r"\b([A-Za-z][A-Za-z0-9_]*)=(\S+)")
_INDEX_NAME = re.compile(r"^(?:PIP_.*(?:INDEX|LINKS|HOST).*|UV_.*(?:INDEX|MIRROR|LINKS).*|CONDA_.*CHANNEL.*)$", re.I)
_INDEX_OPTION = re.compile(
    r"--(?:(?:extra-)?index-url|default-index|index|find-links|trusted-host|allow-insecure-host)[ =]+"
    r"(?:[\w-]+=)?(?:https?://)?([^\s/'\"]+)"
)
_INDEX_SETTING = re.compile(r"\b((?:PIP|UV|CONDA)_[A-Z_]+)=(?:[\w-]+=)?(?:https?://)?([^\s/'\"]+)")


def secret_in(path: str, data: bytes) -> str:
    """What secret this file holds, in words; empty where it holds none."""
    for ending, words, needs in _NAMED:
        if path.endswith(ending) and needs.search(data):
            return words
    return secret_text(data, examples=not is_config(path))


def secret_text(data: bytes, *, examples: bool = True) -> str:
    """What secret these bytes hold, in words; empty where they hold none, or one that examples have."""
    if not any(literal in data for literal in _LITERALS):
        return ""
    for words, pattern in _SECRETS:
        for found in pattern.finditer(data):
            if not (examples and _EXAMPLES.search(found.group())):
                return words
    return ""


def secret_variable(name: str, value: str) -> str:
    """What secret a variable of the environment is, in words; empty where it is none."""
    if found := secret_text(value.encode()):
        return found
    return "a secret by its name" if value and _SECRET_NAME.search(name) else ""


def secret_step(words: str) -> str:
    """What secret a step of the history holds, in words: also a build argument or variable that is one by its name."""
    if found := secret_text(words.encode()):
        return found
    named = (
        name for name, value in _ASSIGNED.findall(words) if _SECRET_NAME.search(name) and value not in ('""', "''")
    )
    return next((f"a secret by its name ({name})" for name in named), "")


def is_config(path: str) -> bool:
    """Whether a file is one in which people name mirrors and proxies."""
    return _CONFIG.search(path) is not None


def hosts(data: bytes) -> tuple[str, ...]:
    """The hosts that a configuration file names, and `a proxy` where it sets one; without user names and passwords."""
    lines = b"\n".join(line for line in data.splitlines() if not line.lstrip().startswith((b"#", b"//", b";")))
    named = {match.group(1).rpartition(b"@")[2].decode("utf-8", "replace") for match in _URL.finditer(lines)}
    return tuple(sorted(named) + (["a proxy"] if _PROXY.search(lines) else []))


def address_variable(name: str) -> bool:
    """Whether a variable names an index or a mirror."""
    return _INDEX_NAME.match(name) is not None


def address_step(words: str) -> tuple[str, ...]:
    """The indexes and mirrors that a step of the history names, without user names and passwords."""
    named = _INDEX_OPTION.findall(words)
    named += [host for name, host in _INDEX_SETTING.findall(words) if address_variable(name)]
    return tuple(sorted({host.rpartition("@")[2] for host in named}))


def proxy_step(words: str) -> tuple[str, ...]:
    """The proxy variables that a step of the history sets."""
    found = re.findall(r"\b((?:https?|ftp|all)_proxy)=\S", words, re.IGNORECASE)
    return tuple(sorted(set(found)))
