"""Results that gpuprof prints or writes: trees, tables, explanations, timelines and pages."""
