"""Sums and largest losses by summary, period and sample: the mergeable state of a run."""
