"""Logging: structlog and the standard library's loggers through one chain, to standard error. JSON lines off a
terminal, colour on it.

Events are dotted and in the past tense (`entry.settled`); ids are bound once per task. Subjects and locators are not
logged above debug: nobody's code here binds them, and the chain drops them should somebody begin to.
"""

import logging
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

PRIVATE = ("subject", "locator", "tenant", "conversation")
"""Keys that appear at level debug only."""
_CHATTY = (
    # a line for every doorbell and every sweep
    "celery.app.trace",
    "celery.worker.strategy",
    "celery.beat",
    "alembic",
)
_NAMES_URLS = ("httpx", "httpx2", "httpcore", "httpcore2", "openai", "boto3", "botocore", "urllib3", "s3transfer")
"""Clients that log the URL of a request, which holds the locator."""
_FRAMES = 6
"""Of a traceback: the innermost."""


class _StandardError(logging.StreamHandler[TextIO]):
    """Whatever sys.stderr is at the moment: a progress bar puts its own stream there while it is shown."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def configure_logging(level: str = "info", *, json: bool | None = None) -> None:
    """Send everything from `level` up to standard error. `json` decides the form; by default, whether it is a terminal
    does. Calling it again replaces what was there."""
    if json is None:
        json = not sys.stderr.isatty()
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")
        if json
        else structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
    ]
    if number > logging.DEBUG:
        shared.append(_drop_private)
    handler = _StandardError()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()] if number <= logging.DEBUG else shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *([structlog.processors.format_exc_info] if number <= logging.DEBUG else [_name_exception]),
                _renderer(json),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [*(other for other in root.handlers if not isinstance(other, _StandardError)), handler]
    root.setLevel(number)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET if number <= logging.DEBUG else logging.WARNING)
    for name in _NAMES_URLS:
        logging.getLogger(name).setLevel(logging.NOTSET if number <= logging.DEBUG else logging.ERROR)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    logging.captureWarnings(True)


def _renderer(json: bool) -> Processor:
    if json:
        return structlog.processors.JSONRenderer(default=str)
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)


def _drop_private(_: Any, __: str, event: EventDict) -> EventDict:
    for key in PRIVATE:
        event.pop(key, None)
    return event


def _name_exception(_: Any, __: str, event: EventDict) -> EventDict:
    """An exception by its class and its place in the code: a driver's or a client's message may quote a locator."""
    given = event.pop("exc_info", None)
    error = given if isinstance(given, BaseException) else given[1] if isinstance(given, tuple) else sys.exc_info()[1]
    if given and error is not None:
        event["raised"] = type(error).__qualname__
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
        event["at"] = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return event
