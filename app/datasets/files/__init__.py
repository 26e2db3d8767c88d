"""Files of datasets: safe opening, fast reading, and detection of changes."""
