"""Runs an image's processes as a container engine would, without one: bubblewrap gives them the image as their root.

A container has process ids, a host name and mounts of its own, the image's user and environment, and a root file
system that can't be written. The hosts of a pod share a network that nothing else can reach and that leads nowhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

# What engines leave to root. Another user has none of them.
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
_APART = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--as-pid-1", "--die-with-parent", "--new-session"),
    *("--clearenv", "--cap-drop", "ALL"),
)
_PREFIX = f"stateferry-{os.getpid()}-"
_NETWORK = "10.0.0"
_SWITCH = "switch"
# As <sched.h> calls it: CLONE_NEWNET.
_NEW_NETWORK = 0x40000000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Image:
    """An image's root file system, and what it says about its processes."""

    root: Path
    config: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        return dict(variable.split("=", 1) for variable in self.config["Env"])

    @property
    def user(self) -> str:
        return str(self.config["User"])


@dataclass(frozen=True, slots=True)
class Container:
    """How a container is started. Of its root file system, it can write only to its mounts and temporary folders.

    `mounts` says by which name it sees which folder of this machine.
    """

    image: Image
    host: str
    mounts: Mapping[str, Path]
    temporary: Sequence[str] = ("/tmp",)
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None


@dataclass(slots=True)
class Pod:
    """Hosts that know each other by name, in a network that nothing else can reach and that leads nowhere."""

    folder: Path
    hosts: Sequence[str]
    _started: ExitStack = field(default_factory=ExitStack)

    @contextmanager
    def running(self) -> Iterator[Pod]:
        self.folder.mkdir(parents=True, exist_ok=True)
        addresses = {host: f"{_NETWORK}.{number}" for number, host in enumerate(self.hosts, 2)}
        lines = [f"{address} {host}\n" for host, address in addresses.items()]
        self._names.write_text("127.0.0.1 localhost\n" + "".join(lines))
        with ExitStack() as networks:
            networks.enter_context(_network(_SWITCH))
            _ip(_SWITCH, "link", "add", "switch", "type", "bridge")
            _ip(_SWITCH, "link", "set", "switch", "up")
            for number, (host, address) in enumerate(addresses.items()):
                networks.enter_context(_network(host))
                port = f"port{number}"
                _ip(_SWITCH, "link", "add", port, "type", "veth", "peer", "eth0", "netns", _PREFIX + host)
                _ip(_SWITCH, "link", "set", port, "master", "switch", "up")
                _ip(host, "address", "add", f"{address}/24", "dev", "eth0")
                _ip(host, "link", "set", "eth0", "up")
            with self._started:
                yield self

    def run(self, container: Container, *command: str) -> subprocess.CompletedProcess[str]:
        words = self._command(container, command)
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def start(self, container: Container, *command: str) -> subprocess.Popen[bytes]:
        """Runs until the pod ends, and writes a log."""
        return self._start(container.host, self._command(container, command))

    def start_process(self, host: str, *command: str, user: str = "root") -> subprocess.Popen[bytes]:
        """A program of this machine, which ends with this process at the latest."""
        known = pwd.getpwnam(user)
        words = [*_as_user(known.pw_uid, known.pw_gid), "setpriv", "--pdeathsig", "KILL", *command]
        return self._start(host, [*_on(host), *words])

    def log(self, host: str) -> Path:
        return self.folder / f"{host}.log"

    def on(self, host: str, function: Callable[..., _T], *arguments: Any) -> _T:
        """Calls the function in a thread that has the host's network."""
        with ThreadPoolExecutor(1, initializer=_enter, initargs=(host,)) as thread:
            return thread.submit(function, *arguments).result()

    def _start(self, host: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self.log(host).open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self._started.callback(_stop, process)
        return process

    @property
    def _names(self) -> Path:
        return self.folder / "hosts"

    def _command(self, container: Container, command: Sequence[str]) -> list[str]:
        image, config = container.image, container.image.config
        sandbox: list[object] = ["bwrap", "--tmpfs", "/"]
        for entry in sorted(image.root.iterdir()):
            sandbox += ["--symlink", entry.readlink()] if entry.is_symlink() else ["--ro-bind", entry]
            sandbox.append(f"/{entry.name}")
        sandbox += ["--dev", "/dev", "--proc", "/proc"]
        sandbox += ["--ro-bind", self._names, "/etc/hosts"]
        for inside in ("/dev/shm", *container.temporary):
            sandbox += ["--perms", "1777", "--tmpfs", inside]
        for inside, there in container.mounts.items():
            # As engines do. The root is that of a working container, not the image itself.
            (image.root / inside[1:]).mkdir(parents=True, exist_ok=True)
            sandbox += ["--bind", there, inside]
        sandbox += ["--remount-ro", "/", *_APART, "--hostname", container.host, "--chdir", config["WorkingDir"]]
        for capability in _CAPABILITIES:
            sandbox += ["--cap-add", f"CAP_{capability}"]
        for name, value in {**image.environment, **container.environment}.items():
            sandbox += ["--setenv", name, value]
        user = container.user or image.user
        words = [*sandbox, *_as_user(user, user), *config["Entrypoint"], *(command or config["Cmd"])]
        return [*_on(container.host), *map(str, words)]


def _as_user(user: str | int, group: str | int) -> list[str]:
    """What starts a command as this user."""
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """A container's other processes end with its first, which is of another user, so that bwrap can't end it."""
    first = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for child in first.read_text().split():
            os.kill(int(child), signal.SIGKILL)
    process.kill()
    process.wait()


@contextmanager
def _network(host: str) -> Iterator[None]:
    subprocess.run(["ip", "netns", "add", _PREFIX + host], check=True)
    try:
        _ip(host, "link", "set", "lo", "up")
        yield
    finally:
        subprocess.run(["ip", "netns", "delete", _PREFIX + host], check=True)


def _ip(host: str, *words: str) -> None:
    subprocess.run(["ip", "-netns", _PREFIX + host, *words], check=True)


def _on(host: str) -> list[str]:
    return ["ip", "netns", "exec", _PREFIX + host]


def _enter(host: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{_PREFIX}{host}") as network:
        if libc.setns(network.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "setns")
