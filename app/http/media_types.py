"""Media types of answers, by format name as in ``?format=``."""

MEDIA_TYPES = {
    "csv": "text/csv; charset=utf-8; header=present",
    "ndjson": "application/x-ndjson",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
    "bin": "application/octet-stream",
    "frames": "application/vnd.thalweg.frames",
}
"""Formats of tables and their media types; the first is the default."""

PICTURE_TYPES = {"svg": "image/svg+xml", "png": "image/png"}
"""Formats of pictures of reports, and their media types."""

FILE_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
    **PICTURE_TYPES,
}
"""Media types of the files of pages, by ending."""

PROBLEM = "application/problem+json"
