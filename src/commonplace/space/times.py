"""Times as people and programs use them: aware datetimes outside, whole microseconds inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from commonplace.errors import InvalidInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST, _LAST = ((limit.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND for limit in (datetime.min, datetime.max))


def moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def optional_moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else moment(microseconds)


def microseconds(name: str, time: datetime | str | None) -> int | None:
    """Read a time: an aware datetime, or ISO 8601 text with an offset or `Z`; None stays None."""
    if time is None:
        return None
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError as error:
            raise InvalidInput(f"{name} must be a time such as 2026-01-31T12:00:00Z, not {time!r}") from error
    if not isinstance(time, datetime):
        raise InvalidInput(f"{name} must be a datetime or an ISO 8601 string, not {type(time).__name__}")
    if time.tzinfo is None or _offset(time) is None:
        raise InvalidInput(f"{name} has no time zone; give it one, for example datetime.now(UTC)")
    found = (time - _EPOCH) // _MICROSECOND
    if not _FIRST <= found <= _LAST:
        raise InvalidInput(f"{name} must be between the years 1 and 9999 in UTC, not {time}")
    return found


def _offset(time: datetime) -> timedelta | None:
    try:
        return time.utcoffset()
    except NotImplementedError:  # a time zone that somebody did not finish
        return None


def expiry(now: int, ttl_seconds: float | None) -> int | None:
    """When something written now ends, from how long it may live."""
    if ttl_seconds is None:
        return None
    if isinstance(ttl_seconds, bool) or not isinstance(ttl_seconds, (int, float)) or not 0 < ttl_seconds <= 3e9:
        raise InvalidInput(f"ttl_seconds must be a number of seconds above 0, not {ttl_seconds!r}")
    return now + int(ttl_seconds * 1_000_000)
