"""Records built as an Apache Beam pipeline; needs requirements-beam.txt."""
