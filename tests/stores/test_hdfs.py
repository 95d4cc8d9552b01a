"""What only HDFS has: drafts, name services, owners of files, and a client that would wait without end."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkstate.errors import StateferryError, TransientError, UsageError
from flinkstate.files import hdfs as driver
from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA, drafts
from flinkstate.reading.reader import Savepoint
from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED, MAY_PASS
from stateferry.cli import main
from stateferry.runs.control.cleaning import _drafts_if_reached
from tests.stores.area import Area
from tests.support.hdfs_server import HdfsServer
from tests.support.in_process import without_spark
from tests.support.servers import LOOPBACK, free_port

pytestmark = pytest.mark.slow
_SAFE_MODE = "org.apache.hadoop.hdfs.server.namenode.SafeModeException"
_DENIED = "org.apache.hadoop.security.AccessControlException"
on_hdfs = pytest.mark.parametrize("folder", ["hdfs"], indirect=True)


@pytest.mark.full
@on_hdfs
def test_a_file_has_a_draft_s_name_until_it_is_whole(folder: str) -> None:
    place = Location.of(folder).child(METADATA)
    with place.create() as stream:
        stream.write(bytes(20 << 20))
        (draft,) = drafts(place.parent)
        assert not place.exists()
    assert (place.size(), drafts(place.parent), draft.exists()) == (20 << 20, [], False)


@pytest.mark.full
@on_hdfs
def test_cleaning_removes_drafts_of_killed_writers(area: Area, capsys: pytest.CaptureFixture[str]) -> None:
    area.source()
    assert main(area.run()) == 0
    killed = f"{METADATA}.{'0' * 32}.draft"
    Location.of(area.at("target")).child(killed).write_atomically(b"half")
    capsys.readouterr()
    assert main(["clean", "--older-than", "0s"]) == 0
    assert f"removed draft {area.at('target')}/{killed}" in capsys.readouterr().out
    assert drafts(Location.of(area.at("target"))) == []


def test_no_drafts_are_found_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The HDFS of an earlier target may be gone; cleaning goes on."""
    monkeypatch.setattr(driver, "_PATIENCE_SECONDS", 0.5)
    assert _drafts_if_reached(f"hdfs://{LOOPBACK}:{free_port()}/target") == []


@pytest.mark.full
def test_a_name_service_is_found_by_hadoop_s_settings(
    hdfs: HdfsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of its NameNodes is away."""
    settings = {
        "dfs.nameservices": "harbour",
        "dfs.ha.namenodes.harbour": "one,two",
        "dfs.namenode.rpc-address.harbour.one": f"{LOOPBACK}:{free_port()}",
        "dfs.namenode.rpc-address.harbour.two": f"{LOOPBACK}:{hdfs.port}",
    }
    properties = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items())
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{properties}</configuration>")
    with pytest.raises(UsageError, match="viewfs://harbor/ is not in Hadoop's settings: HADOOP_CONF_DIR names"):
        driver.Hdfs("viewfs", "harbor")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    place = Location.of("hdfs://harbour/found")
    place.write_atomically(b"x")
    assert Location.of(hdfs.uri("found")).read() == b"x"


@pytest.fixture
def troubled(tmp_path: Path) -> Iterator[HdfsServer]:
    with HdfsServer(tmp_path / "troubled") as server:
        yield server


@pytest.mark.full
@pytest.mark.parametrize("node", ["name", "data"])
def test_a_run_survives_the_loss_of_a_node(
    node: str,
    troubled: HdfsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command says that another try may help, and it does: when the NameNode is back, or knows the dead node."""
    without_spark(monkeypatch)
    monkeypatch.setattr(driver, "_PATIENCE_SECONDS", 2.0)
    area = Area(troubled.uri("area"), tmp_path)
    monkeypatch.setenv("STATEFERRY_HOME", area.at("home"))
    monkeypatch.setenv("STATEFERRY_CATALOG", area.catalog)
    area.source()
    kill = troubled.kill_name_node if node == "name" else lambda: troubled.kill_data_node(0)
    create, killed = Location.create, False

    def kill_once(self: Location) -> object:
        nonlocal killed
        if not killed and self.shown.startswith(area.at("target")):
            killed = True
            kill()
        return create(self)

    monkeypatch.setattr(Location, "create", kill_once)
    code, end = main(area.run()), time.monotonic() + 120
    assert killed
    if node == "name":
        assert code == MAY_PASS
        troubled.start_name_node()
    while code == MAY_PASS and time.monotonic() < end:
        assert not Location.of(area.at("target")).child(METADATA).exists()
        code = main(area.run())
    assert code == 0, capsys.readouterr().err
    Savepoint.open(area.at("target"))


def test_a_host_without_a_port_is_the_namenode_s_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_PATIENCE_SECONDS", 0.5)
    with pytest.raises(TransientError, match=r"^hdfs://localhost/x can't be reached: "):
        Location.of("hdfs://localhost/x").exists()


def test_a_silent_namenode_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_PATIENCE_SECONDS", 0.5)
    with socket.create_server((LOOPBACK, 0)) as silent:
        name = f"hdfs://{LOOPBACK}:{silent.getsockname()[1]}/x"
        with pytest.raises(TransientError) as caught:
            Location.of(name).read()
    assert str(caught.value) == f"{name} can't be read: HDFS gave no answer within 0 seconds"


@on_hdfs
def test_a_file_of_another_user_is_refused_in_one_line(area: Area, hdfs: HdfsServer) -> None:
    from hdfs_native import Client

    source = Location.of(area.source())
    Client(hdfs.uri()).set_permission(source.path, 0o700)
    command = [sys.executable, "-m", "stateferry.cli", "inspect", source.shown]
    stranger = {**os.environ, "HADOOP_USER_NAME": "stranger"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=stranger)
    assert ran.returncode == DAMAGED_OR_REFUSED
    assert ran.stderr.startswith(f"stateferry: {source.shown}")
    assert "Permission denied: user=stranger" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


@on_hdfs
def test_a_process_that_was_forked_has_connections_of_its_own(folder: str) -> None:
    place = Location.of(folder).child("file")
    place.write_atomically(b"before")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            Location.of(place.shown).write_atomically(b"after")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert place.read() == b"after"


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        (f'RPCError("{_SAFE_MODE}", "In safe mode.\n\tat a.b")', ConnectionError, "SafeModeException: In safe mode."),
        (f'RPCError("{_DENIED}", "Denied\\n\\tat a.b")', OSError, "AccessControlException: Denied"),
        ('DataTransferError("no DataNode")', ConnectionError, 'DataTransferError("no DataNode")'),
    ],
)
def test_what_hdfs_says_is_told_without_java_s_stack(said: str, kind: type[OSError], text: str) -> None:
    def fail() -> None:
        raise RuntimeError(said)

    with pytest.raises(OSError, match=re.escape(text)) as caught:
        driver._in_time(fail)
    assert (type(caught.value), str(caught.value)) == (kind, text)


def test_other_errors_keep_their_kind(folder: str) -> None:
    with pytest.raises(StateferryError, match="expected a file, found none"):
        Location.of(folder).child("missing").read()
