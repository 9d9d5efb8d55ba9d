"""``python -m gpuprof``."""

from gpuprof._cli import main

main(prog_name="gpuprof")
