"""NVTX: ranges through the package nvtx, and the gate's range through the tool's own library."""
