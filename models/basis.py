"""The legal bases of an erasure and the time they give.

- `gdpr`, `uk_gdpr`: one calendar month after receipt. Regulation (EU) 2016/679, Article 12(3); UK GDPR, Article 12(3).
- `ccpa`: 45 days after receipt. California Civil Code § 1798.130(a)(2)(A).
- `request`: somebody asked, and no statute sets a date.

A CHECK of erasure_case has the same words, so that a case by plain SQL cannot name a basis that nobody counts from.
"""

from datetime import datetime, timedelta

from dateutil.relativedelta import relativedelta

from expunge.models.errors import InvalidCase

BASES: dict[str, relativedelta | timedelta | None] = {
    "request": None,
    "gdpr": relativedelta(months=1),
    "uk_gdpr": relativedelta(months=1),
    "ccpa": timedelta(days=45),
}


def due_date(basis: str, received_at: datetime) -> datetime | None:
    """When the law wants the erasure done; None without a clock. Raises InvalidCase for an unknown basis."""
    try:
        period = BASES[basis]
    except KeyError:
        raise InvalidCase(f"basis: {basis!r} is not known; known are {', '.join(BASES)}") from None
    return None if period is None else received_at + period
