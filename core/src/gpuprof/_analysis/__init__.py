"""What a run's ledgers say together: its steps, where their time went, and why."""
