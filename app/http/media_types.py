"""Media types of answers, by the name each format has in ``?format=``."""

from __future__ import annotations

MEDIA_TYPES = {
    "csv": "text/csv; charset=utf-8; header=present",
    "ndjson": "application/x-ndjson",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
    "bin": "application/octet-stream",
    "frames": "application/vnd.thalweg.frames",
}
"""Media type of each format a table can be answered in; the first is the default."""

PROBLEM = "application/problem+json"
