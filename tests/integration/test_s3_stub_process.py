"""The stub as a process of its own, as the tests use it that kill things."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError
from servers import s3_stub
from servers.ports import answers_http, free_port, wait_until


def test_the_log_is_written_before_the_answer(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "access.jsonl"
    command = [sys.executable, s3_stub.__file__, "--port", str(port), "--log", str(log), "--bucket", "old:Enabled"]
    process = subprocess.Popen(command)
    try:
        wait_until(lambda: answers_http(port), process)
        client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id=s3_stub.ACCESS_KEY,
            aws_secret_access_key=s3_stub.SECRET_KEY,
            region_name="us-east-1",
            config=Config(retries={"total_max_attempts": 1}),
        )
        client.put_object(Bucket="old", Key="k", Body=b"x")
        fault = f"http://127.0.0.1:{port}/-/fault?operation=DeleteObjects&kind=drop_after&times=1"
        urllib.request.urlopen(urllib.request.Request(fault, method="POST")).close()
        with pytest.raises(ConnectionClosedError):
            client.delete_objects(Bucket="old", Delete={"Objects": [{"Key": "k"}]})
        with pytest.raises(ClientError):
            client.get_object(Bucket="old", Key="k")
    finally:
        process.kill()
        process.wait()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (dropped,) = [line for line in lines if line["operation"] == "DeleteObjects"]
    assert (dropped["status"], dropped["done"], dropped["keys"]) == (None, True, ["k"])
    assert dropped["request_id"]
