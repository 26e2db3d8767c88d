"""Other iteration libraries by their names and documented behaviour.

Three packages take the place of a library: :mod:`.infinibatch`, :mod:`.emloop` and
:mod:`.dataio` (Caffe2's readers and writers). Programs that use one of them change an
import; ``tests/compat`` runs the libraries' own test suites against these packages.

They share with :mod:`core.iterate` what they can: random numbers and permutations, and the
epochs of ``StreamWrapper``. Prefetching, limits and batching exist twice, on purpose. The
engine iterates over *blocks* of columns and lets the caller hold the state; the libraries
iterate over Python *items* of any type, one at a time, and hold the state themselves. Their
users also rely on details that contradict the engine's: processes rather than threads,
``data_finished`` that is False where a limit ends exactly with the data, checkpoints of a
whole chain, the order of Python's Mersenne generator. An adapter would have to turn every
item into a block of one and back, and to undo each of those differences.
"""
