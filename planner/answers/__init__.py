"""What is asked and answered: results are data."""
