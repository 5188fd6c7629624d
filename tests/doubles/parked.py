"""A drain's batch in a thread that stops at every named step until it is told to go on.

So a test decides in which order several workers, the sweep and people move, and where a worker is left for dead.
"""

import threading
import time
import uuid

from expunge.models.claim import claim
from expunge.tasks.batch import Batch
from expunge.tasks.runtime import Runtime

DONE = "done"
_SECONDS = 30.0


class Abandoned(BaseException):
    """Raised in the thread of a worker that is not wanted any more; no handler of the product takes it."""


class ParkedWorker:
    """One claim of one lane. It parks at `claimed`, `looked`, `marked`, `called` and `settled`, and ends `done`.

    Not at `settling`, where a transaction is open.
    """

    def __init__(self, runtime: Runtime, lane: str, limit: int) -> None:
        self.runtime = runtime
        self.token = str(uuid.uuid4())
        runtime.on_step = self._park
        self._go = threading.Semaphore(0)
        self._parked = threading.Semaphore(0)
        self._at = ""
        self._abandoned = False
        self._error: BaseException | None = None
        with runtime.database.begin() as tx:
            self._claim = claim(tx, lane, token=self.token, limit=limit, lease_seconds=runtime.policy.lease_seconds)
        self._claimed_at = time.monotonic()
        self.entry_ids = [entry.id for entry in self._claim.entries]
        self._eraser = runtime.eraser(lane)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def step(self) -> str:
        """Let it go on to its next step; gives that step's name. Raises what the worker raised."""
        self._go.release()
        if not self._parked.acquire(timeout=_SECONDS):
            raise TimeoutError(f"the worker hangs after {self._at}")
        if self._error is not None:
            raise self._error
        return self._at

    def abandon(self) -> None:
        """End the thread, wherever it is."""
        self._abandoned = True
        self._go.release()
        self._thread.join(_SECONDS)

    def _park(self, step: str) -> None:
        if step == "settling":
            return
        self._at = step
        self._parked.release()
        self._wait()

    def _wait(self) -> None:
        self._go.acquire()
        if self._abandoned:
            raise Abandoned

    def _run(self) -> None:
        try:
            self._wait()
            Batch(self.runtime, self._eraser, self._claim, claimed_at=self._claimed_at).run()
        except Abandoned:
            return
        except BaseException as error:
            self._error = error
        self._at = DONE
        self._parked.release()
