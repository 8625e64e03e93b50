"""Tables: files of rows, several files as one, and data in memory."""
