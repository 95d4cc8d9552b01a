"""Runs uv, which installs packages side by side, with the settings that pip has: index, certificates, proxy.

    .venv/bin/python constraints/uv_like_pip.py pip install --python .venv-airflow ...

Pip reads them from its configuration files and from PIP_... variables, uv from UV_... variables. A UV_... variable that
is set already stays as it is.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# What uv calls pip's settings; a list is separated by spaces in both, unless said otherwise below.
_NAMES = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "no-index": ("UV_NO_INDEX",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "timeout": ("UV_HTTP_TIMEOUT",),
}
_SEPARATED_BY_COMMAS = "find-links"
# Later ones override earlier ones.
_SECTIONS = ("global", "install", ":env:")


def pip_settings(listed: str) -> dict[str, str]:
    """The settings that `pip config list` shows, as in `global.index-url='https://...'`."""
    found: dict[str, str] = {}
    for section in _SECTIONS:
        for line in listed.splitlines():
            name, equals, value = line.partition("=")
            if equals and name.startswith(f"{section}."):
                found[name.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    return found


def uv_environment(settings: Mapping[str, str]) -> dict[str, str]:
    # Like pip, take the best version of all indexes.
    environment = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for name, value in settings.items():
        words = value.split()
        separator = "," if name == _SEPARATED_BY_COMMAS else " "
        if words:
            environment |= dict.fromkeys(_NAMES.get(name, ()), separator.join(words))
    return environment


def main() -> int:
    listing = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(listing, stdout=subprocess.PIPE, text=True, check=True).stdout
    environment = uv_environment(pip_settings(listed)) | os.environ
    return subprocess.run([str(Path(sys.executable).with_name("uv")), *sys.argv[1:]], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
