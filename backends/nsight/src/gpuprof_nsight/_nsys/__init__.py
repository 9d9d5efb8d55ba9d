"""The program nsys: finding it, its options, and trial runs."""
