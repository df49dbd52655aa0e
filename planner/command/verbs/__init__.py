"""One file per verb of the command: its options, the Python call it mirrors, and what it prints."""
