"""The two dates of what is erased, in plain words, and nothing more than the receipts say."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from expunge.models.states import ReceiptStatus

_GONE = (ReceiptStatus.DELETED, ReceiptStatus.ALREADY_ABSENT, ReceiptStatus.ABSENT)


@dataclass(slots=True)
class Dates:
    """Of one kind at one account: the latest of each."""

    removed: date | None = None
    absent: date | None = None
    ended: date | None = None
    purged: date | None = None
    is_known: bool = True
    """Every receipt has a purge date."""
    sources: set[str] = field(default_factory=set)


class TwoDates:
    """Reads receipts as they pass by."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Dates] = {}

    def reading(self, pages: Iterable[Sequence[Mapping[str, Any]]]) -> Iterator[Sequence[Mapping[str, Any]]]:
        """The same pages."""
        for page in pages:
            for row in page:
                self._add(row)
            yield page

    def _add(self, row: Mapping[str, Any]) -> None:
        status, due = row["status"], row["purge_due_at"]
        if row["version"] is None and status == ReceiptStatus.ENDED:
            dates = self._of(row)
            dates.ended = max(row["at"].date(), dates.ended or row["at"].date())
            return
        if row["version"] is not None or status not in _GONE or (status == ReceiptStatus.ABSENT and due is None):
            return  # a version, or a second look at what another receipt has closed
        dates = self._of(row)
        on = row["at"].date()
        if status == ReceiptStatus.DELETED:
            dates.removed = max(on, dates.removed or on)
        else:
            dates.absent = max(on, dates.absent or on)
        if due is None:
            dates.is_known = False
            return
        dates.purged = max(due.date(), dates.purged or due.date())
        source = (row["detail"] or {}).get("purge_source")
        if source is not None:
            dates.sources.add(str(source))

    def _of(self, row: Mapping[str, Any]) -> Dates:
        return self._found.setdefault((row["account"], row["kind"]), Dates())

    def lines(self) -> list[str]:
        """One for each kind at each account."""
        return [f"{account} {kind}: {_said(dates)}." for (account, kind), dates in sorted(self._found.items())]


def _said(dates: Dates) -> str:
    told = []
    if dates.removed is not None:
        told.append(f"removed on {dates.removed}")
    if dates.absent is not None:
        told.append(f"found absent on {dates.absent}")
    if dates.ended is not None:
        told.append(f"ended on {dates.ended}, its record stays at the provider")
        if dates.removed is None and dates.absent is None:
            return "; ".join(told)
    if dates.purged is None or not dates.is_known:
        told.append("by when the provider purges it is not known")
    else:
        source = f" ({', '.join(sorted(dates.sources))})" if dates.sources else ""
        told.append(f"purged by the provider by {dates.purged}{source}")
    return "; ".join(told)
