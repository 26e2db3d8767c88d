"""Decoding by C libraries, in processes that may crash, hang or be taken over.

HDF5, parquet, Arrow and blosc are decoded by large libraries that were written for files one
trusts. A few changed bytes make them abort, loop for ever or allocate without bound, and in the
service each of these would end every request. So they run elsewhere:

    service                                     worker process
    opens and identifies files (Roots)
    ── descriptors, a request in JSON ────────▶ decodes through pread on these descriptors
    ── a sealed memfd ─────────────────────────▶ straight into this shared memory
    ◀─ dtype, shape, offsets in JSON ─────────
    checks every number of it

A file in a bucket has no descriptor: the worker, which has no network, asks for its bytes as it
comes to need them, and gets them in memory of their own (:mod:`.watch`).

Values that lie in a file as they are, as in most Arrow files, are not decoded at all: the worker
says at which bytes, and the service reads these itself.

A worker can open no file, socket or process (:mod:`.worker.sandbox`), and has limits on memory
and files. The service measures its time and kills it when that is used up (:mod:`.process`).
Whatever happens to a worker is the problem of one request, ``dataset-unreadable``; the pool
starts another one (:mod:`.pool`). What a worker answers is never trusted: it is bounded, parsed
as JSON, checked against what was asked, and never unpickled.

Formats are known at both ends only: in :mod:`.worker`, and in the products that ask.
"""
