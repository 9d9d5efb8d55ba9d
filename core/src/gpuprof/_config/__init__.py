"""The configuration: its schema, and reading it from files, variables and overrides."""

OUTPUT_DIR = "gpuprof-output"
"""Default of the key `output_dir`. Here, because commands that read runs do not import the schema.
"""
