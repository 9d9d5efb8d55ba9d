"""Trial runs of nsys, before the job and for `gpuprof doctor`."""
