"""What the user wants: the schema, and reading it from files, mappings, the environment and
overrides.
"""
