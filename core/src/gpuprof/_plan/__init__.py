"""Who is profiled, with which command and environment, and which files will be there.

Pure: nothing starts.
"""
