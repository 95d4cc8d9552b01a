"""A headless Chromium, driven by the W3C WebDriver protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_airflow.settings import LOOPBACK, free_port

BROWSER, DRIVER = "chromium", "chromedriver"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_ENTER = "\ue007"
# As a page made with React hears of it.
_PASTE = """
const [field, text] = arguments;
Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, text);
field.dispatchEvent(new Event("input", {bubbles: true}));
"""


class BrowserError(Exception):
    """What the driver says is wrong."""


def why_not() -> str:
    """What is missing here; empty if a browser can be started."""
    missing = [name for name in (BROWSER, DRIVER) if shutil.which(name) is None]
    return f"no {' and no '.join(missing)} (Debian: chromium, chromium-driver)" if missing else ""


@dataclass(frozen=True, slots=True)
class Browser:
    session: str

    def open(self, url: str) -> None:
        self._call("POST", "/url", {"url": url})

    def click(self, xpath: str, seconds: float = 240) -> None:
        self._when_ready(xpath, "click", {}, seconds)

    def type(self, xpath: str, text: str, seconds: float = 240) -> None:
        self._when_ready(xpath, "value", {"text": text}, seconds)

    def paste(self, xpath: str, text: str) -> None:
        """Into a field, all at once: a page that is busy drawing itself loses letters that are typed one by one."""
        field = {_ELEMENT: self._find(xpath, 60)}
        self._call("POST", "/execute/sync", {"script": _PASTE, "args": [field, text]})

    def choose(self, xpath: str, text: str) -> None:
        """In a field that offers what begins so."""
        self.type(xpath, f"{text}{_ENTER}")

    def wait_for(self, xpath: str, seconds: float = 240) -> None:
        self._find(xpath, seconds)

    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def run(self, script: str) -> Any:
        """What the script returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": []})

    def look_like(self, width: int, height: int, *, dark: bool = False) -> None:
        """Shows pages as on a screen of this size, and to somebody who likes them dark or light."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", {"features": [scheme]})

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def _command(self, name: str, parameters: dict[str, Any]) -> None:
        """One of the browser's own protocol."""
        self._call("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def _when_ready(self, xpath: str, action: str, body: dict[str, Any], seconds: float) -> None:
        """Pages are drawn anew at any moment: what was found may be gone, or lie under something, when it is used."""
        end = time.monotonic() + seconds
        while True:
            element = self._find(xpath, max(end - time.monotonic(), 1))
            try:
                self._call("POST", f"/element/{element}/{action}", body)
            except BrowserError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
            else:
                return

    def _find(self, xpath: str, seconds: float) -> str:
        end = time.monotonic() + seconds
        while True:
            found = self._call("POST", "/elements", {"using": "xpath", "value": xpath})
            if found:
                return str(found[0][_ELEMENT])
            if time.monotonic() > end:
                raise BrowserError(f"expected {xpath} within {seconds:.0f} s, found:\n{self.text()}")
            time.sleep(0.2)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return _request(method, f"{self.session}{path}", body)


@contextmanager
def browser(folder: Path, width: int = 1400, height: int = 1000) -> Iterator[Browser]:
    """Its profile and the driver's log go to the folder."""
    url = f"http://{LOOPBACK}:{(port := free_port())}"
    with (folder / "driver.log").open("wb") as log:
        driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_until_ready(url)
            yield from _session(url, folder, f"--window-size={width},{height}")
        finally:
            driver.terminate()
            driver.wait(20)


def _session(url: str, folder: Path, *arguments: str) -> Iterator[Browser]:
    options = {
        # The sandbox asks the kernel for what a container, or root, does not get.
        "args": ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile", *arguments],
        "binary": shutil.which(BROWSER),
    }
    wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
    session = f"{url}/session/{_request('POST', f'{url}/session', wanted)['sessionId']}"
    try:
        yield Browser(session)
    finally:
        with contextlib.suppress(OSError, BrowserError):
            _request("DELETE", session, None)


def _wait_until_ready(url: str) -> None:
    end = time.monotonic() + 240
    while True:
        try:
            if _request("GET", f"{url}/status", None)["ready"]:
                return
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


def _request(method: str, url: str, body: dict[str, Any] | None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())["value"]
    except urllib.error.HTTPError as error:
        with error:
            raise BrowserError(json.loads(error.read())["value"]["message"]) from None
