"""Printed results: timing trees, the receipt, and tables of ranges."""
