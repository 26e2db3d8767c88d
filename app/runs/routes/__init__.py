"""Routes of runs, their streams, rows and reports."""
