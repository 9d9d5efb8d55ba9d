"""The command that a worker gets: options, what is known of them, the gate, and rendering it all."""
