"""Frameworks whose plugins are still in core."""
