"""nsys's reports: naming them, importing unfinished captures, exporting and reading them."""
