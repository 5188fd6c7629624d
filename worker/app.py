"""What Celery's command line loads: `celery -A expunge.worker.app worker` and `… beat`, from any folder.

The settings come from EXPUNGE_CONFIG, ./expunge.toml and the environment. Wrong ones end the process with one line.
"""

from typing import Any

import structlog
from celery import signals
from kombu.transport import virtual

from expunge.models import bell, schema
from expunge.models.errors import ConfigurationError, SchemaError
from expunge.worker.celery_app import OneRuntime, make_app
from expunge.worker.logging import configure_logging
from expunge.worker.metrics import MetricsServer
from expunge.worker.sources import load_settings

log = structlog.get_logger()

try:
    settings = load_settings()
    settings.webhook()
except ConfigurationError as error:
    raise SystemExit(f"expunge: {error}") from None

configure_logging(settings.log_level)
runtime = OneRuntime(settings)
served: list[MetricsServer] = []
"""The metrics of this worker, once it has begun."""
app = make_app(settings, runtime)


@signals.setup_logging.connect(weak=False)
def _our_logging(**_: Any) -> None:
    """Being connected keeps Celery from setting up its own."""


@signals.celeryd_init.connect(weak=False)
@signals.beat_init.connect(weak=False)
def _require_shared_broker(**_: Any) -> None:
    if settings.in_memory:
        raise SystemExit(
            "expunge: broker_url is memory://, which no other process hears: name a broker that all workers share, "
            "or run expunge up"
        )


def _restore_no_doorbells() -> None:
    """A doorbell that was taken and not run yet is not put back: the sweep rings again. Putting it back also ends the
    worker when the broker is lost in just that moment (kombu 5.7: AttributeError on a connection that is closed)."""
    virtual.Channel.do_restore = False


@signals.worker_init.connect(weak=False)
def _begin(**_: Any) -> None:
    _restore_no_doorbells()
    _serve_metrics()
    bell.take_down()  # a runtime rings by itself
    try:
        schema.require(runtime.get().database)
    except SchemaError as error:
        raise SystemExit(f"expunge: {error}") from None
    except Exception as error:
        log.warning("database.unreachable", error=type(error).__name__)


def _serve_metrics() -> None:
    try:
        server = MetricsServer(settings)
    except ConfigurationError as error:
        # the work matters more than being watched: another worker of this machine may have the port
        log.error("metrics.not_served", reason=str(error))
        return
    served.append(server)
    runtime.on_settled = server.settled


@signals.worker_shutting_down.connect(weak=False)
def _stopping(**_: Any) -> None:
    runtime.stop()


@signals.worker_shutdown.connect(weak=False)
def _end(**_: Any) -> None:
    runtime.close()
    for server in served:
        server.close()
