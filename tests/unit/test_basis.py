"""Statutory dates: the arithmetic of each law, month ends, leap years, and zones."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.models.basis import BASES, EXTENSIONS, due_date, extended_date
from expunge.models.errors import InvalidCase

CLOCKED = sorted(EXTENSIONS)
FIRST, LAST = datetime.fromisoformat("1971-01-02"), datetime.fromisoformat("9990-01-01")
MOMENTS = st.datetimes(min_value=FIRST, max_value=LAST, timezones=st.just(UTC))


def _day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("basis", "received", "due", "extended"),
    [
        ("gdpr", "2026-12-02", "2027-01-02", "2027-03-02"),
        ("gdpr", "2026-01-31", "2026-02-28", "2026-04-28"),
        ("uk_gdpr", "2028-01-31", "2028-02-29", "2028-04-29"),
        ("uk_gdpr", "2026-08-31", "2026-09-30", "2026-11-30"),
        ("gdpr", "2028-02-29", "2028-03-29", "2028-05-29"),
        ("ccpa", "2026-01-15", "2026-03-01", "2026-04-15"),
        ("ccpa", "2028-01-15", "2028-02-29", "2028-04-14"),
        ("vcdpa", "2026-12-02", "2027-01-16", "2027-03-02"),
    ],
)
def test_each_law_counts_in_its_own_way(basis, received, due, extended) -> None:
    first = due_date(basis, _day(received))
    assert first == _day(due)
    assert extended_date(basis, first) == _day(extended)


@pytest.mark.parametrize("weekend", ["2026-09-05", "2026-09-06"])
def test_a_weekend_moves_no_date(weekend) -> None:
    assert due_date("gdpr", _day(weekend) - timedelta(days=31)) == _day(weekend)


def test_the_zone_of_the_receipt_counts_where_its_date_is_earlier() -> None:
    # 1 March in UTC, but still 28 February where it was received: 28 March, not 1 April
    received = datetime(2026, 2, 28, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    assert due_date("gdpr", received) == datetime(2026, 3, 29, 4, 30, tzinfo=UTC)
    # 1 March where it was received, but 28 February in UTC: the earlier
    received = datetime(2026, 3, 1, 0, 30, tzinfo=timezone(timedelta(hours=9)))
    assert due_date("gdpr", received) == datetime(2026, 3, 28, 15, 30, tzinfo=UTC)


def test_a_request_has_no_clock_and_an_unknown_basis_none_either() -> None:
    assert due_date("request", _day("2026-01-01")) is None
    with pytest.raises(InvalidCase):
        extended_date("request", _day("2026-01-01"))
    with pytest.raises(InvalidCase):
        due_date("moon", _day("2026-01-01"))


def test_a_date_after_the_last_year_is_the_last() -> None:
    assert due_date("gdpr", datetime(9999, 12, 31, tzinfo=UTC)) == datetime.max.replace(tzinfo=UTC)


def test_every_basis_with_a_clock_can_be_extended() -> None:
    assert set(CLOCKED) == {name for name, period in BASES.items() if period is not None}


@given(basis=st.sampled_from(CLOCKED), one=MOMENTS, two=MOMENTS, hours=st.integers(-12, 14))
def test_dates_keep_their_order(basis, one, two, hours) -> None:
    one, two = sorted((one, two))
    first, second = due_date(basis, one), due_date(basis, two)
    assert one < first < extended_date(basis, first)
    assert first.date() <= second.date()
    assert one < due_date(basis, one.astimezone(timezone(timedelta(hours=hours)))) <= first
