"""Files of object stores and HDFS that are sent while they are written, and appear whole when they are closed.

Each request to a store takes tens of milliseconds, so a file is sent in large parts, each while the next one is made.
What is held in memory is bounded.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from flinkstate.errors import RefusedError
from flinkstate.files.hdfs import HdfsOutput
from flinkstate.files.os_errors import naming

_PART = 8 << 20


class RemoteOutput:
    """A new file, which appears with its whole content when it is closed. Errors name it."""

    def __init__(self, stream: Any, name: str, most: int | None = None) -> None:
        """The store takes no more than `most` bytes in a file."""
        self._stream, self._name, self._most = stream, name, most
        self._part = bytearray()
        self._size = 0
        self._sender: ThreadPoolExecutor | None = None
        self._sent: Future[Any] | None = None
        self.closed = False

    def __enter__(self) -> RemoteOutput:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._size += len(view)
        if self._most is not None and self._size > self._most:
            raise RefusedError(
                f"{self._name} can't be written: the store takes at most {self._most:,} bytes in a file. If it is the "
                "state of a subtask, give more subtasks (--parallelism)"
            )
        self._part += view
        if len(self._part) >= _PART:
            # At most one part is on its way while the next one is filled.
            self._wait()
            if self._sender is None:
                self._sender = ThreadPoolExecutor(1, "remote-output")
            self._sent, self._part = self._sender.submit(self._stream.write, self._part), bytearray()
        return len(view)

    def flush(self) -> None:
        """Does nothing: no reader sees a part of the file."""

    def close(self) -> None:
        """Sends the rest; then the file is there."""
        if self.closed:
            return
        try:
            self._wait()
            with naming(self._name):
                if self._part:
                    self._stream.write(self._part)
                self._stream.close()
            self.closed = True
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Ends the work on the file. If it isn't closed, it never appears.

        To close the stream of an object store, or to collect it as garbage, would put the incomplete bytes under the
        file's name, where another attempt may have written the complete file. A reference that is never released keeps
        it from that. A stream of HDFS removes its draft.
        """
        if self._sender is not None:
            self._sender.shutdown(cancel_futures=True)
        if not self.closed:
            self.closed = True
            if isinstance(self._stream, HdfsOutput):
                self._stream.abandon()
            else:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._stream))

    def __del__(self) -> None:
        self.abandon()

    def _wait(self) -> None:
        if self._sent is not None:
            sent, self._sent = self._sent, None
            with naming(self._name):
                sent.result()
