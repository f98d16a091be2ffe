"""Another OS user lays traps in a private cluster's folder, or on the way to it.

Only root can play both parts. The attacker is ``nobody``; what is to be harmed is `victim`, a file
of root's that nobody else may read or change.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kanon_db.cluster.cluster_folder import (
    SHARED_HOME,
    read_start,
    remove_entry,
    replace_file,
    require_trusted,
)
from kanon_db.cluster.local_cluster import LocalCluster, default_directory
from kanon_db.errors import ServerError
from kanon_db.installation.interpreter import _copy_environment
from tests.clusters import new_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play two OS users")

NOBODY = pwd.getpwnam("nobody")
ONLY_OURS = "known to root alone"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder below /tmp that everybody may enter."""
    path = new_folder()
    path.mkdir()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def victim(place: Path) -> Iterator[Path]:
    path = place / "victim"
    path.write_text(ONLY_OURS)
    path.chmod(0o600)
    before = path.stat()
    yield path
    after = path.stat()
    assert path.read_text() == ONLY_OURS
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)


@pytest.fixture
def theirs(place: Path) -> Path:
    """A folder of the attacker's."""
    path = place / "theirs"
    path.mkdir()
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    return path


@pytest.fixture
def sticky(place: Path) -> Path:
    """A folder in which everybody may make entries, such as /tmp."""
    path = place / "sticky"
    path.mkdir()
    path.chmod(0o1777)
    return path


def link_of_theirs(link: Path, target: Path) -> None:
    link.symlink_to(target)
    os.chown(link, NOBODY.pw_uid, NOBODY.pw_gid, follow_symlinks=False)


def refused(folder: Path, match: str = "belongs to another user") -> None:
    """Every command refuses a folder, and leaves everything in it as it was."""
    before = sorted(folder.rglob("*")) if folder.is_dir() else None
    cluster = LocalCluster(folder)
    actions: list[Callable[[], object]] = [
        cluster.start, cluster.stop, cluster.status, cluster.dsn, cluster.destroy,
    ]  # fmt: skip
    for action in actions:
        with pytest.raises(ServerError, match=match) as caught:
            action()
        assert caught.value.hint
    assert (sorted(folder.rglob("*")) if folder.is_dir() else None) == before


@pytest.mark.pitfall(27)
def test_link_in_a_folder_of_another_user(theirs: Path, victim: Path) -> None:
    """Whatever file the link stands for, every command refuses the folder."""
    for name in (
        "cluster.json", "cluster.json.new", "lock", "kanon.conf.new", "server.log", "data",
    ):  # fmt: skip
        (theirs / name).symlink_to(victim)
        refused(theirs)
        (theirs / name).unlink()


@pytest.mark.pitfall(27)
def test_folder_below_one_of_another_user(theirs: Path, victim: Path) -> None:
    """Who owns the parent can put a link in the folder's place at any time."""
    refused(theirs / "cluster")
    ours = theirs / "ours"
    ours.mkdir(mode=0o700)
    (ours / "cluster.json.new").symlink_to(victim)
    refused(ours)


def test_default_folder_in_a_checkout_of_another_user(
    theirs: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: the cluster goes where nobody else can change it."""
    monkeypatch.chdir(theirs)
    assert default_directory().parent == SHARED_HOME
    monkeypatch.chdir(place)
    assert default_directory() == Path(".kanon")


@pytest.mark.pitfall(27)
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_folder_in_which_others_can_write(place: Path, victim: Path, mode: int) -> None:
    """Every command refuses a folder that others can change."""
    open_to_all = place / "open"
    open_to_all.mkdir()
    os.chown(open_to_all, 0, NOBODY.pw_gid)
    open_to_all.chmod(mode)
    if mode != 0o1777:  # nobody can take away or replace what is in a sticky folder
        refused(open_to_all / "cluster", "other users can change")
    (open_to_all / "cluster.json.new").symlink_to(victim)
    refused(open_to_all, "other users can change")


@pytest.mark.pitfall(27)
def test_link_of_another_user_to_our_folder(place: Path, theirs: Path, sticky: Path) -> None:
    """It could lead root to another of its clusters, to stop or destroy it."""
    ours = place / "ours"
    ours.mkdir()
    state = {"home": ".", "socket": "socket", "account": "postgres"}
    (ours / "cluster.json").write_text(json.dumps(state))
    (theirs / "link").symlink_to(ours)
    refused(theirs / "link")
    link_of_theirs(sticky / "link", ours)
    refused(sticky / "link")
    assert (ours / "cluster.json").exists()


def test_own_links_are_followed(place: Path) -> None:
    ours = place / "ours"
    ours.mkdir()
    (place / "absolute").symlink_to(ours)
    (place / "relative").symlink_to("./absolute/../ours")
    require_trusted(place / "relative" / "missing" / "end")
    assert LocalCluster(place / "relative").status().state == "absent"
    (place / "round").symlink_to("round")
    with pytest.raises(ServerError, match="cannot be used"):
        LocalCluster(place / "round").start()


def test_folder_that_appears_in_tmp_meanwhile(sticky: Path, theirs: Path) -> None:
    """In a sticky directory, what does not exist yet may be anybody's a moment later."""
    folder = sticky / "cluster"
    require_trusted(folder)
    link_of_theirs(folder, theirs)
    mode = theirs.stat().st_mode
    refused(folder)
    assert theirs.stat().st_mode == mode
    assert list(theirs.iterdir()) == []


@pytest.mark.pitfall(27)
def test_file_is_replaced_without_following_a_link(place: Path, victim: Path) -> None:
    """A link in place of the new file is replaced, not followed."""
    (place / "cluster.json.new").symlink_to(victim)
    replace_file(place / "cluster.json", "{}")
    assert (place / "cluster.json").read_text() == "{}"
    assert not (place / "cluster.json").is_symlink()
    assert not (place / "cluster.json.new").exists()


@pytest.mark.pitfall(27)
def test_links_and_pipes_of_the_server_user(theirs: Path, victim: Path) -> None:
    """The server's OS user owns the data directory, and may put anything in it."""
    (theirs / "postmaster.pid").symlink_to(victim)
    (theirs / "endless").symlink_to("/dev/zero")
    (theirs / "directory").mkdir()
    os.mkfifo(theirs / "PG_VERSION")
    for name in ("postmaster.pid", "endless", "directory", "PG_VERSION", "missing"):
        assert read_start(name, theirs) is None
    (theirs / "long").write_bytes(b"1" * 100_000)
    assert len(read_start("long", theirs) or "") == 4096
    link = theirs.parent / "link"
    link.symlink_to(theirs)
    assert read_start("long", link) is None
    with contextlib.suppress(OSError):
        remove_entry("long", link)
    assert (theirs / "long").exists()


def test_server_that_names_a_folder_of_its_own_for_the_environment(
    theirs: Path, tmp_path: Path
) -> None:
    """Installing copies the environment beside a private cluster's data: the server says where."""
    (theirs / "kanon.conf").touch()
    (tmp_path / "module.py").touch()
    assert _copy_environment(theirs / "data", [str(tmp_path)]) is None
    assert [entry.name for entry in theirs.iterdir()] == ["kanon.conf"]


@pytest.mark.long
def test_everything_in_a_cluster_is_private(place: Path) -> None:
    cluster = LocalCluster(place / "cluster")
    try:
        cluster.start()
        modes = {entry.name: entry.stat().st_mode & 0o777 for entry in cluster.directory.iterdir()}
        readable = {"cluster.json": 0o644, "kanon.conf": 0o644}
        files = {"lock": 0o600, "server.log": 0o600, **readable}
        assert modes == {"data": 0o700, "socket": 0o700, **files}
        assert cluster.directory.stat().st_mode & 0o777 == 0o711  # others only pass through
    finally:
        cluster.destroy()
    assert not cluster.directory.exists()
