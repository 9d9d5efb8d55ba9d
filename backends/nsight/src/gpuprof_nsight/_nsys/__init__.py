"""The program nsys: where it is, what it can do, and running it on something small."""
