"""What comes in: logs and histories become scenarios and estimates."""
