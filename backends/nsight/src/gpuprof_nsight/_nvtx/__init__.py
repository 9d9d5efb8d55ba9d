"""NVTX: ranges by the package nvtx, and the gate's range by the tool's own library."""
