"""OpenAI's API, as the demo provider has it."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from unittest import mock

from conformance.harness import DeleteCall, Fault, World
from servers.provider import KEY_VARIABLE, account

from expunge.tasks.erasers.contract import Eraser
from expunge.worker import demo_provider_faults as faults
from expunge.worker.demo_provider import DemoProvider

_PREFIX = {"file": "file-", "vector_store": "vs_", "conversation": "conv_", "response": "resp_"} | {
    "container": "cntr_",
    "container_file": "cntr_of_files/cfile_",
    "thread": "thread_",
    "assistant": "asst_",
    "chat_completion": "chatcmpl-",
    "upload": "upload_",
    "batch": "batch_",
}

KINDS = tuple(_PREFIX)

_FAULTS = {
    Fault.THROTTLE: faults.Fault(faults.Reply.ERROR, status=429, headers={"retry-after": "7"}),
    Fault.UNAVAILABLE: faults.Fault(faults.Reply.ERROR, status=500),
    Fault.DROP_AFTER: faults.Fault(faults.Reply.DROP, acts=True),
    Fault.DROP_BEFORE: faults.Fault(faults.Reply.DROP),
    Fault.GARBAGE: faults.Fault(faults.Reply.PAGE),
    Fault.MISSING_PAGE: faults.Fault(faults.Reply.PAGE, status=404),
}


class OpenAIWorld:
    """A provider with one account on it, whose answers must come from its own project."""

    ends = ("upload", "batch")

    def __init__(self, provider: DemoProvider, eraser: Eraser) -> None:
        self._provider = provider
        self._eraser = eraser
        self._numbers = count(1)

    def make(self, kind: str) -> str:
        locator = self.absent(kind)
        number = next(self._numbers)
        match kind:
            case "file" | "response":
                self._provider.seed(**{f"{kind}s": [locator]})
            case "vector_store":
                self._provider.seed(files=[f"file-of-{number}"], vector_stores={locator: [f"file-of-{number}"]})
            case "container":
                self._provider.seed(containers=[locator], container_files=[f"{locator}/cfile_{number}"])
            case "container_file":
                self._provider.seed(container_files=[locator])
            case "thread" | "assistant" | "chat_completion":
                self._provider.seed(**{f"{kind}s": [locator]})
            case "upload":
                self._provider.seed(uploads=[locator])
            case "batch":
                self._provider.seed(batches=[locator])
            case "conversation":
                self._provider.seed(conversations={locator: [f"msg_{number}_{item}" for item in range(3)]})
        return locator

    def absent(self, kind: str) -> str:
        return f"{_PREFIX[kind]}{next(self._numbers)}"

    def exists(self, kind: str, locator: str) -> bool:
        state = self._provider.project().dump()
        if kind in self.ends:
            files = [file for file in state["files"] if file.startswith(f"file-{locator}-")]
            name = "uploads" if kind == "upload" else "batches"
            return bool(files) or state[name].get(locator) in ("pending", "in_progress", "cancelling")
        return locator in state.get(f"{kind}s", ()) or locator in state["left_behind_items"]

    def eraser(self) -> Eraser:
        return self._eraser

    def deletes(self) -> list[DeleteCall]:
        return [
            DeleteCall(line["request_id"], ((_locator(line["path"]), None),), line["status"])
            for line in self._provider.log.lines()
            if line["method"] == "DELETE" or line["path"].endswith("/cancel")
        ]

    @contextmanager
    def fault(self, fault: Fault) -> Iterator[None]:
        for method, path in (("DELETE", "*"), ("POST", "*/cancel")):
            self._provider.faults.add(replace(_FAULTS[fault], method=method, path=path, times=None))
        try:
            yield
        finally:
            self._provider.faults.clear()

    @contextmanager
    def without_credentials(self) -> Iterator[None]:
        with mock.patch.dict(os.environ, {KEY_VARIABLE: ""}):
            yield


def _locator(path: str) -> str:
    path = path.removesuffix("/cancel")
    return re.sub("/(items|files)/", "/", path.removeprefix("/v1/chat").removeprefix("/v1").split("/", 2)[2])


@contextmanager
def open_world() -> Iterator[World]:
    """A provider of its own for each test."""
    with (
        DemoProvider() as provider,
        account(provider.base_url, organization="org-demo", project="proj_demo") as eraser,
    ):
        provider.seed(containers=["cntr_of_files"])
        yield OpenAIWorld(provider, eraser)
