"""A worker's command: its options, nsys's known options, the gate, and the rendering."""
