"""Items of stored files: events of loss streams, rows of tables, lines of text."""
