"""Loss streams: parsing, checking and event reports."""
