"""Plans which workers are profiled, with which command and environment, into which files.

Pure: starts no process.
"""
