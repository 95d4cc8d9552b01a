"""Files on HDFS, as `Location` asks for them, by a client that needs neither Java nor Hadoop's library.

A file has a draft's name while it is written, so that it appears complete, as on an object store. The client waits
without end for a NameNode or DataNode that is silent; here each answer has to come in time.
"""

from __future__ import annotations

import importlib.util
import re
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pyarrow import fs

from flinkstate.errors import MissingHereError, UsageError

SCHEMES = ("hdfs", "viewfs")

_PATIENCE_SECONDS = 60.0
_DEFAULT_PORT = 8020
_SETTINGS = (
    "HADOOP_CONF_DIR names the folder with core-site.xml and hdfs-site.xml, where the addresses of name services are"
)
# A Java exception comes with its stack, in one text, whose line ends may be escaped.
_STACK = re.compile(r"(?:\\n|\n)\s*(?:\\t)?at .*", re.DOTALL)
_REMOTE_ERROR = re.compile(r"(?:Fatal)?RPCError\(\"(?:[\w.$]+\.)?(?P<kind>[\w$]+)\", \"(?P<text>.*?)\"?\)?$", re.DOTALL)
# Whatever else goes wrong, a NameNode or DataNode that is back, or has room, or a new ticket of Kerberos may mend.
_FINAL = re.compile(
    r"AccessControl|PermissionDenied|NotDirectory|NotEmpty|Invalid(Path|Argument|Token)|UrlParse|XmlParse|Unsupported"
)

Answer = TypeVar("Answer")


class Hdfs:
    """One name service, or one NameNode."""

    def __init__(self, scheme: str, authority: str) -> None:
        if importlib.util.find_spec("hdfs_native") is None:
            raise MissingHereError(
                f"{scheme}://{authority}/ can't be reached: HDFS needs the Python package hdfs-native. Install "
                "stateferry[hdfs], on Spark's workers too"
            )
        self._client = _client(scheme, authority)

    def get_file_info(self, asked: str | fs.FileSelector) -> Any:
        """Returns what is known of a file or folder, or of all that are in a folder."""
        if isinstance(asked, fs.FileSelector):
            return self._listed(asked)
        try:
            return _info(_in_time(lambda: self._client.get_file_info(asked)))
        except FileNotFoundError:
            return fs.FileInfo(asked, fs.FileType.NotFound)

    def _listed(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            found = _in_time(lambda: list(self._client.list_status(selector.base_dir, selector.recursive)))
        except FileNotFoundError:
            return []
        if [(one.path, one.isdir) for one in found] == [(selector.base_dir, False)]:
            raise NotADirectoryError(f"{selector.base_dir} is a file")
        return [_info(one) for one in found]

    def open_input_file(self, path: str) -> HdfsInput:
        return HdfsInput(_in_time(lambda: self._client.read(path)))

    def open_output_stream(self, path: str) -> HdfsOutput:
        return HdfsOutput(self._client, path)

    def create_dir(self, path: str, *, recursive: bool) -> None:
        _in_time(lambda: self._client.mkdirs(path, create_parent=recursive))

    def delete_dir(self, path: str) -> None:
        _in_time(lambda: self._client.delete(path, True))

    def delete_file(self, path: str) -> None:
        _in_time(lambda: self._client.delete(path, False))


class HdfsInput:
    """A file for reading at any place."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def size(self) -> int:
        return int(self._reader.size)

    def read_at(self, size: int, start: int) -> bytes:
        return bytes(_in_time(lambda: self._reader.read_range(start, size)))

    def close(self) -> None:
        """Does nothing: between two reads no connection is open."""


class HdfsOutput:
    """A new file, which gets its name, and replaces one of that name, when it is closed."""

    def __init__(self, client: Any, path: str) -> None:
        from hdfs_native import WriteOptions

        self._client, self._path = client, path
        self._draft = f"{path}.{uuid.uuid4().hex}.draft"
        # A `FileWriter` around this would close the file when it is collected as garbage, and wait for that.
        self._writer = _in_time(lambda: client.inner.create(self._draft, WriteOptions()))

    def write(self, data: Any) -> None:
        content = bytes(data)
        _in_time(lambda: self._writer.write(content))

    def close(self) -> None:
        def name() -> None:
            self._writer.close()
            self._client.rename(self._draft, self._path, True)

        _in_time(name)

    def abandon(self) -> None:
        """Removes the draft."""
        try:
            _in_time(lambda: self._client.delete(self._draft, False))
        except OSError:
            # The earlier error is the one to report; a draft that stays is `stateferry clean`'s.
            return


def _client(scheme: str, authority: str) -> Any:
    from hdfs_native import Client

    address = f"{scheme}://{authority}"
    try:
        return Client(address)
    except RuntimeError as error:
        if "InvalidArgument" not in str(error):
            raise _as_system_error(error) from error
    # It knows no such name service, so this is a host; only with a port the client takes it for one.
    if authority and ":" not in authority and scheme == "hdfs":
        return Client(f"{address}:{_DEFAULT_PORT}")
    raise UsageError(f"{address}/ is not in Hadoop's settings: {_SETTINGS}")


def _info(status: Any) -> fs.FileInfo:
    if status.isdir:
        return fs.FileInfo(status.path, fs.FileType.Directory, mtime_ns=status.modification_time * 1_000_000)
    return fs.FileInfo(status.path, fs.FileType.File, size=status.length, mtime_ns=status.modification_time * 1_000_000)


def _in_time(ask: Callable[[], Answer]) -> Answer:
    """Returns the answer; if none comes in time, another attempt may get one."""
    answer: Future[Answer] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 who asked gets it
            answer.set_exception(error)

    # Nobody waits for this thread at the end of the process: if HDFS stays silent, it never ends.
    threading.Thread(target=work, name="hdfs", daemon=True).start()
    try:
        return answer.result(_PATIENCE_SECONDS)
    except TimeoutError:
        raise TimeoutError(f"HDFS gave no answer within {_PATIENCE_SECONDS:.0f} seconds") from None
    except (OSError, RuntimeError, NotImplementedError) as error:
        raise _as_system_error(error) from error


def _as_system_error(error: Exception) -> OSError:
    """Returns the error as the system would have raised it, with the words of HDFS and without a stack of Java."""
    text = _STACK.sub("", str(error))
    if isinstance(error, OSError) and type(error) is not OSError:
        return type(error)(text)
    remote = _REMOTE_ERROR.match(text)
    if remote is not None:
        text = f"{remote['kind']}: {remote['text']}"
    if isinstance(error, NotImplementedError) or _FINAL.search(text):
        return OSError(text)
    return ConnectionError(text)
