"""What goes into the log, in which form, and what never does."""

import json
import logging

import pytest
import structlog

from expunge.worker.logging import configure_logging


@pytest.fixture(autouse=True)
def _put_back():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def lines(capsys) -> list[dict]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_json_lines_with_what_is_bound(capsys) -> None:
    configure_logging("info", json=True)
    with structlog.contextvars.bound_contextvars(lane="artifacts", entry_id=7):
        structlog.get_logger().info("entry.settled", status="deleted")
    (line,) = lines(capsys)
    assert line["event"] == "entry.settled"
    assert (line["lane"], line["entry_id"], line["status"], line["level"]) == ("artifacts", 7, "deleted", "info")
    assert line["time"].endswith("Z")


def test_the_standard_library_goes_through_the_same_chain(capsys) -> None:
    configure_logging("info", json=True)
    with structlog.contextvars.bound_contextvars(lane="artifacts"):
        logging.getLogger("celery.worker").warning("lost %s", "it")
    (line,) = lines(capsys)
    assert (line["event"], line["lane"], line["logger"]) == ("lost it", "artifacts", "celery.worker")


def test_subjects_and_locators_appear_at_debug_only(capsys) -> None:
    for level in ("info", "debug"):
        configure_logging(level, json=True)
        structlog.get_logger().warning("x", subject="u-1", locator="b/k", tenant="t", conversation="c", kind="object")
    quiet, loud = lines(capsys)
    assert "kind" in quiet
    assert not {"subject", "locator", "tenant", "conversation"} & set(quiet)
    assert loud["locator"] == "b/k"


def test_an_exception_is_named_and_not_quoted(capsys) -> None:
    configure_logging("info", json=True)
    try:
        raise ValueError("duplicate key bucket/secret-key")
    except ValueError as error:
        structlog.get_logger().error("drain.failed", exc_info=True)
        structlog.get_logger().error("drain.failed", exc_info=error)
        logging.getLogger("celery").exception("task")
    for line in lines(capsys):
        assert line["raised"] == "ValueError"
        assert "test_logging.py" in line["at"][0]
        assert "secret-key" not in json.dumps(line)


@pytest.mark.parametrize("name", ["httpx", "httpx2", "openai", "botocore", "urllib3.connectionpool", "boto3"])
def test_clients_that_name_urls_are_silent(capsys, name) -> None:
    configure_logging("info", json=True)
    logging.getLogger(name).info("DELETE https://api.openai.com/v1/files/file-1")
    logging.getLogger(name).warning("Retrying /bucket/key")
    assert lines(capsys) == []


def test_doorbells_and_sweeps_are_not_told_one_by_one(capsys) -> None:
    configure_logging("info", json=True)
    logging.getLogger("celery.app.trace").info("Task expunge.drain[…] succeeded")
    logging.getLogger("celery.worker.strategy").info("Task expunge.drain[…] received")
    logging.getLogger("celery.beat").info("Scheduler: Sending due task sweep")
    assert lines(capsys) == []


def test_the_console_form_has_no_json(capsys) -> None:
    configure_logging("info", json=False)
    structlog.get_logger().info("entry.settled", entry_id=7)
    text = capsys.readouterr().err
    assert "entry.settled" in text
    assert "entry_id=7" in text
    assert not text.startswith("{")


def test_configuring_twice_prints_once(capsys) -> None:
    configure_logging("debug", json=True)
    configure_logging("warning", json=True)
    structlog.get_logger().warning("once")
    structlog.get_logger().info("not at all")
    assert [line["event"] for line in lines(capsys)] == ["once"]
