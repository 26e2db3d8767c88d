"""How far times go."""

MAX_DAYS = 36_525
"""Longest lifetime of anything."""
LAST_SECOND = 253_402_300_799
"""The end of the year 9999 in seconds since 1970: calendars go no further."""
