"""Configurations for Hydra, which finds them: `defaults: [profile/default@cluster.profiling]`."""
