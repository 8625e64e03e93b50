"""Records built as an Apache Beam pipeline; needs apache-beam."""
