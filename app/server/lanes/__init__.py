"""Lanes: small reads wait for no heavy work, because other processes do it.

Threads of one process share the lock of the interpreter, which is handed around badly: beside eight
reductions, a read of half a millisecond waits for its turn some ten times. The operating system
schedules processes well. So there are processes for each kind of work, *lanes*, and every request
is answered by a process of its lane::

    lane    answers                                      processes   priority
    front   metadata, health, tokens, small JSON         1           usual
    quick   one tile, one batch, a picture, a chunk      1           usual
    long    posted streams, uploads, streams of tiles    1 a core     lower, see settings
            and batches, reductions, seals, inputs

A route declares its lane beside its path (``@router.get("/rows", LONG)``), and the table that the
acceptor goes by is made from the routes (:mod:`.table`).

**The way of a request.** One small process, the acceptor, has the listening socket. It looks at the
first bytes of a connection without taking them (``MSG_PEEK``), until it knows the path, and hands
the connection itself, a file descriptor, to the lane's process with the fewest requests::

    client ──connects──▶ acceptor          reads nothing, parses a request line
                            │
                            │ descriptor of the socket (SCM_RIGHTS)
              ╭─────────────┼──────────────╮
              ▼             ▼              ▼
            front         quick       long, long     read the request, answer the client directly
              │
              ╰── the next request on this connection is a reduction: back to the acceptor,
                  with the bytes that were read already, and on to long

The acceptor keeps its own handle until the process says that it has the connection: whichever of
the two dies before, the client is served by another process (:mod:`.acceptor`, :mod:`.lane`).

**The processes.** The supervisor starts, watches and replaces all others. To start the application
takes seconds, so it is loaded once, in the template, and the processes of lanes are forked from
that, in a tenth of a second; a spare replaces it when it dies (:mod:`.wiring`, :mod:`.template`)::

    supervisor ─┬─ acceptor
    (pid 1 of a ├─ template ──fork──▶ front, quick, long, long
    container)  ╰─ spare

**What they share.** State and files are in the data directory, as between several services. What is
counted for all of them together (requests, memory, connections) is in shared memory: a column a
process, cleared when it dies (:mod:`app.tally`). News, such as the progress of a run, come by
datagrams (:mod:`app.state.notices`).

Within a lane owners take turns: at threads (:mod:`app.engine.workers`), and at the event loop
(``app.server.flow``).

``python -m tests.bench.lanes`` measures what kinds of work do to each other; with ``--set
THALWEG_LANES=one`` it shows one process.
"""
