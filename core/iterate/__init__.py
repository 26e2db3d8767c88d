"""Iteration that stops and resumes at any item: sources, stages, and iterators over them.

A *stage* (:mod:`.base`) produces blocks of items from positions or states and holds no state
itself; an *iterator* (:mod:`.iterator`) holds a state for its caller.
"""
