"""What a run has left: read, settled, brought home, listed, and held against the plan."""
