"""Executables with the names of the peer's output tools.

An Oasis run starts dozens of short processes: ``summarypy`` for each process and perspective,
``eltpy`` and ``pltpy`` for each of its summary sets, then ``katpy``, ``aalpy`` and ``lecpy`` for
each output. With :mod:`installing` their names, earlier on PATH, stand for the tools here, which
take the same command lines and leave the same files::

    eltpy (a script of a few lines)
      `- starting.main("eltpy")
           |- options          argparse alone: --help and wrong usage cost no import
           |- ProcessLog       the log file whose last line check_complete looks for
           |- watching         after that: what became of the script and its other processes
           `- loss_tables      numpy, numba and the engine, and what the tool does

What a process imports before its first byte is what a run pays dozens of times. So options and
log come before the engine, the engine without its kernels' compiler where the cache has them,
and Arrow for parquet only; nothing here imports the web, pydantic or the peer.

A tool is silent where it succeeds, because the script ends the run over a line on standard error.
Where it fails it prints one line, logs the same, leaves no file under its name, and ends with 1.
"""
