"""uv, which installs the environments, gets its packages from where pip gets them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT: dict[str, Any] = runpy.run_path(str(Path(__file__).parent.parent / "constraints" / "uv_like_pip.py"))


def environment(*listed: str) -> dict[str, str]:
    found: dict[str, str] = SCRIPT["uv_environment"](SCRIPT["pip_settings"]("\n".join(listed)))
    return found


@pytest.mark.parametrize(
    ("listed", "name", "value"),
    [
        (
            "global.index-url='https://user:secret@mirror/simple'",
            "UV_DEFAULT_INDEX",
            "https://user:secret@mirror/simple",
        ),
        (r"global.extra-index-url='\nhttps://one/\nhttps://two/'", "UV_INDEX", "https://one/ https://two/"),
        ("global.find-links='/wheels /more'", "UV_FIND_LINKS", "/wheels,/more"),
        ("install.no-index='true'", "UV_NO_INDEX", "true"),
        ("global.cert='/etc/ca.pem'", "SSL_CERT_FILE", "/etc/ca.pem"),
        ("global.proxy='http://proxy:3128'", "HTTPS_PROXY", "http://proxy:3128"),
        ("global.trusted-host='mirror'", "UV_INSECURE_HOST", "mirror"),
        (":env:.default-timeout='180'", "UV_HTTP_TIMEOUT", "180"),
    ],
)
def test_uv_has_the_settings_of_pip(listed: str, name: str, value: str) -> None:
    assert environment(listed)[name] == value


def test_a_setting_from_the_environment_overrides_the_files() -> None:
    files = ("global.index-url='https://file/'", "install.index-url='https://install/'")
    assert environment(":env:.index-url='https://variable/'", *files)["UV_DEFAULT_INDEX"] == "https://variable/"
    assert environment(*reversed(files))["UV_DEFAULT_INDEX"] == "https://install/"


def test_what_uv_does_not_know_and_what_is_empty_is_left_out() -> None:
    assert environment() == environment("global.disable-pip-version-check='1'", "global.index-url=''")
