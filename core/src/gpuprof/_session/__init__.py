"""gpuprof inside a worker: its windows, its ranges, its tree, and the file that it leaves."""
