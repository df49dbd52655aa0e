"""What does not knowing the path cost? See README.md."""
