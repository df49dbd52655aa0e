"""Streams: language models as they are served."""
