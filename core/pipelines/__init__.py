"""Pipelines: a JSON spec of stages in, a reproducible sequence of batches out.

A spec passes through the modules in this order::

    spec       parses JSON, fills in defaults, computes the identity
    placement  checks the order of stages
    building   opens sources, builds the chain of stages, adds up the cost
    stepping   produces batches from states
    reading    reads those that follow each other in runs

:mod:`.pipeline` is the entry. The kinds of stages are rows in :mod:`.operations`.
"""
