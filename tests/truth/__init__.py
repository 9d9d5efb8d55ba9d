"""How often `gpuprof explain` is right: generated jobs whose truth is known, and a scorer."""
