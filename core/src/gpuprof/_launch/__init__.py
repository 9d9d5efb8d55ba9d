"""`gpuprof run`: one process of any launcher."""
