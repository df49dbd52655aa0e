"""The pictures of How it works."""
