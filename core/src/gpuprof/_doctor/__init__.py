"""Checks by trying it whether this machine can profile."""
