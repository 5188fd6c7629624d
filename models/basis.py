"""The legal bases of an erasure and the time they give.

- `gdpr`: one calendar month after receipt, and two further months if it is extended: Regulation (EU) 2016/679, Article
  12(3). Counted as Regulation (EEC, Euratom) No 1182/71, Article 3, counts months: to the day with the same number, or
  to the last day of a month that has none.
- `uk_gdpr`: the same, UK GDPR, Article 12(3); the ICO counts to the corresponding calendar date, or to the last day of
  a shorter month.
- `ccpa`: 45 days after receipt, and 45 more if it is extended: California Civil Code § 1798.130(a)(2)(A). The period
  begins on the day of receipt, however long it takes to verify the request, and ends at most 90 days from that day: 11
  CCR § 7021(b). Here it begins at the moment of receipt and not at the end of its day, which is the earlier.
- `vcdpa`: 45 days after receipt, and once 45 more if it is extended: Code of Virginia § 59.1-577(B)(1).
- `request`: somebody asked, and no statute sets a date.

Where a rule would let the time end later, the earlier date is shown: no weekend or public holiday moves it (Article
3(4) of Regulation 1182/71 would), and it keeps the time of day of the receipt, which is not later than the end of its
day. Which day that was depends on the zone: the earlier of the date that follows from UTC and the one that follows from
the zone that `received_at` names. What plain SQL inserted is known in UTC only.

A CHECK of erasure_case has the same words, so that a case by plain SQL cannot name a basis that nobody counts from.
"""

from datetime import UTC, datetime, timedelta

from dateutil.relativedelta import relativedelta

from expunge.models.errors import InvalidCase

BASES: dict[str, relativedelta | timedelta | None] = {
    "request": None,
    "gdpr": relativedelta(months=1),
    "uk_gdpr": relativedelta(months=1),
    "ccpa": timedelta(days=45),
    "vcdpa": timedelta(days=45),
}
EXTENSIONS: dict[str, relativedelta | timedelta] = {
    "gdpr": relativedelta(months=2),
    "uk_gdpr": relativedelta(months=2),
    "ccpa": timedelta(days=45),
    "vcdpa": timedelta(days=45),
}
"""What may be added once, by somebody who says why before the first date has passed."""
_LAST = datetime.max.replace(tzinfo=UTC)


def due_date(basis: str, received_at: datetime) -> datetime | None:
    """When the law wants the erasure done, in UTC; None without a clock. `received_at` is aware.

    Raises InvalidCase for an unknown basis.
    """
    try:
        period = BASES[basis]
    except KeyError:
        raise InvalidCase(f"basis: {basis!r} is not known; known are {', '.join(BASES)}") from None
    return None if period is None else min(_after(at, period) for at in (received_at, received_at.astimezone(UTC)))


def extended_date(basis: str, due_at: datetime) -> datetime:
    """The date that an extension gives; `due_at` is the first one. Raises InvalidCase where the law knows none."""
    if basis not in EXTENSIONS:
        raise InvalidCase(f"basis: {basis!r} knows no extension")
    return _after(due_at.astimezone(UTC), EXTENSIONS[basis])


def _after(moment: datetime, period: relativedelta | timedelta) -> datetime:
    try:
        return (moment + period).astimezone(UTC)
    except (OverflowError, ValueError):  # after the year 9999: by plain SQL, and no reason for a sweep to end
        return _LAST
