"""The configuration: its schema, and reading it from files, variables and overrides."""
