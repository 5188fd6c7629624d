"""A Ceph RGW of its own, from Debian's packages: one monitor, one OSD in memory and a gateway, without containers."""

import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from servers.ports import answers_http, free_port, wait_until

ACCESS_KEY = "cephcephcephceph"
SECRET_KEY = "ceph-secret"

_COMMANDS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")

_CAPS = ("--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *")


class CephMissing(RuntimeError):
    """A command of Ceph is not installed."""


@contextmanager
def ceph_rgw() -> Iterator[str]:
    """Its S3 endpoint URL, once it answers; everything is killed at the end. Raises CephMissing."""
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        raise CephMissing(f"{', '.join(missing)} not installed (apt-get install radosgw ceph-mon ceph-osd ceph-common)")
    with tempfile.TemporaryDirectory(prefix="ceph-", ignore_cleanup_errors=True) as path, ExitStack() as stack:
        directory = Path(path)
        conf, port = _configure(directory)

        def run(*command: str) -> str:
            done = subprocess.run(
                [command[0], "-c", str(conf), *command[1:]], check=True, timeout=60, capture_output=True, text=True
            )
            return done.stdout

        def start(*command: str) -> subprocess.Popen[bytes]:
            log = stack.enter_context(Path(directory, f"{command[0]}.out").open("wb"))
            process = subprocess.Popen(
                [command[0], "-f", "-c", str(conf), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(_end, process)
            return process

        keyring = str(directory / "run" / "keyring")
        run("ceph-authtool", "--create-keyring", keyring)
        for name in ("mon.", "client.admin", "client.rgw", "osd.0"):
            run("ceph-authtool", keyring, "--gen-key", "-n", name, *_CAPS)
        run("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(directory / "monmap"), "--keyring", keyring)
        start("ceph-mon", "-i", "a")
        osd = str(uuid.uuid4())
        run("ceph", "--connect-timeout", "50", "osd", "new", osd)
        run("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", osd)
        start("ceph-osd", "-i", "0")
        gateway = start("radosgw", "-n", "client.rgw")
        wait_until(lambda: answers_http(port), gateway, seconds=120)
        user = ("--uid", "tests", "--display-name", "tests", "--access-key", ACCESS_KEY, "--secret", SECRET_KEY)
        run("radosgw-admin", "user", "create", *user)
        yield f"http://127.0.0.1:{port}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _configure(directory: Path) -> tuple[Path, int]:
    fsid, port = str(uuid.uuid4()), free_port()
    monitor = f"[v2:127.0.0.1:{free_port()},v1:127.0.0.1:{free_port()}]"
    for each in ("mon", "osd", "run"):
        (directory / each).mkdir()
    conf = directory / "ceph.conf"
    conf.write_text(
        f"""
[global]
fsid = {fsid}
mon host = {monitor}
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = {directory}/run/keyring
auth allow insecure global id reclaim = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail crit = 1
mon data = {directory}/mon
osd data = {directory}/osd
osd objectstore = memstore
memstore device bytes = 1073741824
run dir = {directory}/run
admin socket = {directory}/run/$name.asok
pid file = {directory}/run/$name.pid
log file = {directory}/$name.log
rgw data = {directory}/run
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw enable usage log = false
"""
    )
    subprocess.run(
        ["monmaptool", "--create", "--addv", "a", monitor, "--fsid", fsid, str(directory / "monmap")],
        check=True,
        timeout=60,
        capture_output=True,
    )
    return conf, port
