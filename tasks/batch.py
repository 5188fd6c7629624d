"""One claim, driven through look, mark, call and settle.

Nothing is called that is not marked; no transaction is open while a store is asked; and whatever happens, every entry
of the claim is settled, or goes back to the outbox, or keeps a lease that the sweep will end.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import structlog

from expunge.models.claim import Claim
from expunge.models.database import Transaction
from expunge.models.entry import Entry
from expunge.models.evidence import Evidence, known_gone
from expunge.models.lanes import deferral
from expunge.models.mark import Marked, mark, release
from expunge.models.settle import add_parts
from expunge.models.states import Action, EntryAction
from expunge.tasks.backoff import backoff
from expunge.tasks.erasers.contract import Answer, Call, Eraser, Looked, NotSent, Parts, utc_now
from expunge.tasks.escalate import escalate
from expunge.tasks.grouping import Deferred, Group, complaint, group
from expunge.tasks.health import LONGEST_PROBE_WAIT, LaneEvent, pause_unsendable
from expunge.tasks.outcomes import Outcome
from expunge.tasks.receipts import missing, raised
from expunge.tasks.replicas import put_copies
from expunge.tasks.runtime import Runtime
from expunge.tasks.second_look import cannot_look, second_look
from expunge.tasks.settling import Settlement, decide, settle, settle_looked, tell_of_lane, until_reachable

log = structlog.get_logger()

MOST_ROUNDS = 3
"""Complete listings of a composite target that still found parts, before a person is asked."""


class Batch:
    """What one claim got."""

    def __init__(self, runtime: Runtime, eraser: Eraser, claim: Claim, *, claimed_at: float) -> None:
        """`claimed_at` is a `time.monotonic()` moment before the claim: the lease has not begun earlier."""
        self._runtime = runtime
        self._eraser = eraser
        self._claim = claim
        self._account = eraser.account
        self._lease = runtime.policy.lease_seconds
        self._look_until = claimed_at + self._lease / 2
        self._open = {entry.id: entry for entry in claim.entries}
        self._token = claim.entries[0].token
        self.calls = 0
        self.settled = 0

    def run(self) -> None:
        """Drive it as far as time and the stop signal allow; the rest goes back, uncounted."""
        self._runtime.leases.add(self._token)
        try:
            triable = self._triable()
            put_copies(self._runtime, self._account, triable, token=self._token)
            groups, deferred = group(self._claim, triable, self._eraser.batch)
            for late in deferred:
                self._defer(late)
            for together in groups:
                if self._must_stop():
                    break
                self._drive(together)
        finally:
            self._runtime.leases.discard(self._token)
            self._give_back()

    def _must_stop(self) -> bool:
        return not self._open or self._runtime.stopping.is_set() or time.monotonic() >= self._look_until

    def _give_back(self) -> None:
        """What no call was begun about is `ready` again at once."""
        left = list(self._open)
        if not left:
            return

        def give() -> None:
            with self._runtime.database.begin() as tx:
                release(tx, left, token=self._token)

        until_reachable(give)
        self._open.clear()

    def _triable(self) -> list[Entry]:
        """The claim's entries without those that no call can be made for, which are escalated."""
        sick = [(entry, why) for entry in self._open.values() if (why := complaint(self._eraser, entry)) is not None]
        looks = [entry for entry, _ in sick if entry.action == EntryAction.VERIFY]
        if looks:
            self._settle_looked([cannot_look(entry) for entry in looks], Group(looks))
        sick = [(entry, why) for entry, why in sick if entry.action != EntryAction.VERIFY]
        escalate(self._runtime, sick)
        for entry, _ in sick:
            del self._open[entry.id]
        for entry in looks:
            self._open.pop(entry.id, None)
        return list(self._open.values())

    def _defer(self, deferred: Deferred) -> None:
        """Put off entries of a paused bucket; they are due again when it recovers."""
        lane, delay = deferred.lane, LONGEST_PROBE_WAIT
        if lane.is_paused and lane.paused_until is not None:
            delay = max(1.0, (lane.paused_until - utc_now() - self._runtime.database.skew).total_seconds())
        ids = [entry.id for entry in deferred.entries]
        with self._runtime.database.begin() as tx:
            release(tx, ids, token=self._token, delay_seconds=delay, reason=deferral(lane.scope))
        for entry_id in ids:
            del self._open[entry_id]

    def _put_off(self, not_sent: Sequence[NotSent]) -> None:
        """No request about these left the process, so they have no receipt. Either a person is asked about each, or the
        lane pauses and everything that is open goes back, uncounted."""
        of_entries = {each.entry_id: each.reason for each in not_sent if not each.whole_account}
        sick = [(self._open[entry_id], why) for entry_id, why in of_entries.items() if entry_id in self._open]
        escalate(self._runtime, sick)
        for entry, _ in sick:
            del self._open[entry.id]
        reason = next((each.reason for each in not_sent if each.whole_account), None)
        if reason is None:
            return
        left = list(self._open)

        def pause() -> list[LaneEvent]:
            with self._runtime.database.begin() as tx:
                release(tx, left, token=self._token, reason=reason)
                return pause_unsendable(tx, self._account, reason)

        tell_of_lane(self._account, until_reachable(pause))
        self._open.clear()

    def _drive(self, together: Group) -> None:
        """Look, call, and look again at those whose parts were settled, until all are closed or time is up."""
        looks = [entry for entry in together.entries if entry.action == EntryAction.VERIFY]
        if looks:
            self._verify(looks, together)
        pending = [entry for entry in together.entries if entry.action != EntryAction.VERIFY]
        while pending and not self._must_stop():
            looked = self._look(pending)
            self._runtime.on_step("looked")
            for parts in looked.parts:
                self._add_parts(parts)
            self._settle_looked(looked.answers, together)
            self._put_off(looked.not_sent)
            again = self._run_calls(looked.calls, together)
            pending = [self._open[entry_id] for entry_id in dict.fromkeys(again) if entry_id in self._open]

    def _look(self, entries: Sequence[Entry]) -> Looked:
        assert not self._runtime.database.in_transaction, "a store is never asked inside a transaction"
        began = utc_now()
        try:
            return self._eraser.look(entries, self._look_until)
        except Exception as error:
            log.warning("look.raised", lane=self._account, error=type(error).__name__)
            now = utc_now()
            return Looked([raised(entry, error, began, now, "look", Action.LOOK) for entry in entries])

    def _verify(self, entries: Sequence[Entry], together: Group) -> None:
        """The second look: reads only, so that there is nothing to mark before them. It is marked and settled in one
        transaction, as whatever a look decides by itself."""
        assert not self._runtime.database.in_transaction, "a store is never asked inside a transaction"
        answers, not_sent = second_look(self._eraser, entries, self._look_until)
        self._runtime.on_step("looked")
        self._settle_looked(answers, together)
        self._put_off(not_sent)

    def _add_parts(self, parts: Parts) -> None:
        entry = self._open.pop(parts.entry_id, None)
        if entry is None:
            return
        if entry.rounds >= MOST_ROUNDS and entry.cursor is None and parts.children:
            escalate(self._runtime, [(entry, f"still filling up after {MOST_ROUNDS} complete listings")])
            return
        policy = self._runtime.policy
        with self._runtime.database.begin() as tx:
            own = add_parts(
                tx,
                entry.id,
                entry.case_id,
                entry.account,
                parts.children,
                token=self._token,
                cursor=parts.cursor,
                delay_seconds=backoff(1, base=policy.retry_base_seconds, most=policy.retry_max_seconds),
            )
        log.info("entry.unfolded", lane=self._account, case_id=entry.case_id, entry_id=entry.id, parts=own)

    def _mark(self, tx: Transaction, ids: Sequence[int], together: Group) -> Marked:
        return mark(tx, self._account, ids, token=self._token, lease_seconds=self._lease, probe=together.probe)

    def _settle_looked(self, answers: Sequence[Answer], together: Group) -> None:
        answers = [answer for answer in answers if answer.entry_id in self._open]
        if not answers:
            return
        entries = {answer.entry_id: self._open[answer.entry_id] for answer in answers}
        came = settle_looked(
            self._runtime, self._account, entries, answers, known=self._claim.lanes, probe=together.probe
        )
        for entry_id in (*came.held, *came.refused):
            self._open.pop(entry_id, None)
        for settlement in came.settlements:
            self._closed(settlement)
        self._runtime.on_step("settled")

    def _closed(self, settlement: Settlement) -> None:
        again = set(settlement.again)
        for entry_id, entry in settlement.entries.items():
            if entry_id in again:
                self._open[entry_id] = replace(entry, had_parts=True)
            else:
                self._open.pop(entry_id, None)
                self.settled += 1

    def _run_calls(self, calls: Sequence[Call], together: Group) -> list[int]:
        """Mark, call and settle one call after the other; a settle and the next call's mark share a transaction."""
        again: list[int] = []
        marked: Marked | None = None
        marked_at = 0.0
        for number, call in enumerate(calls):
            if self._runtime.stopping.is_set() or not self._open:
                break
            if marked is None:
                marked_at = time.monotonic()
                with self._runtime.database.begin() as tx:
                    marked = self._mark(tx, call.entry_ids, together)
            for entry_id in marked.held:
                self._open.pop(entry_id, None)
            attempts, held, marked = marked.attempts, marked.held, None
            if not attempts:
                if held:
                    continue
                break  # lane or bucket was paused, or the lease is gone: the next claim sorts them
            self._runtime.on_step("marked")
            if self._runtime.stopping.is_set() or time.monotonic() > marked_at + self._lease - self._eraser.timeout:
                break  # the lease may end before the answer: whoever has it then would call as well
            # whatever happens from here on, these are not given back: a call was begun, and its receipt is owed
            entries = {entry_id: self._open.pop(entry_id) for entry_id in attempts}
            answers, not_sent = self._send(call, entries)
            self._runtime.on_step("called")
            for each in not_sent:
                self._open[each.entry_id] = entries.pop(each.entry_id)
                del attempts[each.entry_id]
            if not entries:
                self._put_off(not_sent)
                continue
            settlement = decide(self._runtime, self._account, entries, answers, attempts, probe=together.probe)
            upcoming: Sequence[int] = ()
            if number + 1 < len(calls) and not not_sent and not self._runtime.stopping.is_set():
                upcoming = calls[number + 1].entry_ids
            marked_at = time.monotonic()
            self._closed(settlement)
            marked = settle(
                self._runtime,
                settlement,
                known=self._claim.lanes,
                next_ids=upcoming,
                probe=together.probe,
            )
            if not upcoming:
                marked = None
            again += settlement.again
            self._put_off(not_sent)
        return again

    def _recall(self, answers: Sequence[Answer], entries: dict[int, Entry]) -> list[Answer]:
        """A part whose whole is gone cannot be asked for any more; but two cases may share it, and what the store told
        the other one about this very part is evidence for this one too. The call's own receipt stays what it was; the
        closing one is a look at the earlier receipt, and names it."""
        orphaned = [answer.entry_id for answer in answers if answer.outcome is Outcome.PARENT_ABSENT]
        if not orphaned:
            return []

        def read() -> dict[int, Evidence]:
            with self._runtime.database.read() as tx:
                return known_gone(tx, [entries[entry_id] for entry_id in orphaned])

        gone = until_reachable(read)  # the call was made, and its receipt is owed
        now = utc_now()
        return [
            Answer(
                entry_id,
                Outcome.ABSENT,
                earlier.operation or "look",
                now,
                now,
                action=Action.LOOK,
                request_id=earlier.request_id,
                detail={"known_from_receipt": earlier.receipt_id},
            )
            for entry_id, earlier in gone.items()
        ]

    def _send(self, call: Call, entries: dict[int, Entry]) -> tuple[list[Answer], list[NotSent]]:
        """The call itself: at least one answer for every entry it was about, or that nothing was sent about it; and
        nothing about any other."""
        assert not self._runtime.database.in_transaction, "a store is never called inside a transaction"
        began = utc_now()
        try:
            came = call.send(list(entries))
        except Exception as error:
            log.warning("call.raised", lane=self._account, error=type(error).__name__)
            now = utc_now()
            self.calls += 1
            return [raised(entry, error, began, now, call.operation, Action.DELETE) for entry in entries.values()], []
        known = [each for each in came if each.entry_id in entries]
        if len(known) < len(came):
            log.error("call.answered_others", lane=self._account, answers=len(came) - len(known))
        answers = [each for each in known if isinstance(each, Answer)]
        answered = {answer.entry_id for answer in answers}
        # an answer is of a request: that another one was not sent does not take its receipt away
        unsent = [each for each in known if isinstance(each, NotSent) and each.entry_id not in answered]
        not_sent = {each.entry_id: each for each in unsent}
        now = utc_now()
        answers += self._recall(answers, entries)
        unanswered = [entry for entry_id, entry in entries.items() if entry_id not in answered | not_sent.keys()]
        answers += [missing(entry, began, now, call.operation) for entry in unanswered]
        self.calls += 1 if answers else 0
        return answers, list(not_sent.values())
