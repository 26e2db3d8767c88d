"""Drop-in replacements for other iteration libraries.

Three packages keep the names and the documented behaviour of a library: :mod:`.infinibatch`,
:mod:`.emloop` and :mod:`.dataio` (Caffe2's readers and writers). A program that uses one of them
changes an import; ``tests/compat`` runs the libraries' own test suites against these packages.

They share random numbers, permutations and the epochs of ``StreamWrapper`` with
:mod:`core.iterate`. Prefetching, limits and batching exist twice, on purpose. The engine iterates
over *blocks* of columns and lets the caller hold the state; the libraries iterate over Python
*items* of any type, one at a time, and hold the state themselves. Their users also rely on
details that contradict the engine: processes instead of threads, a ``data_finished`` that is
False if a limit ends exactly with the data, checkpoints of a whole chain, the order of Python's
Mersenne Twister. An adapter would have to wrap every item in a block of one, and undo each of
these differences.
"""
