"""Checks whether this machine can profile, by trying to."""
