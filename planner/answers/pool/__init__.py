"""Calls on other processes, of this machine or of a Ray cluster: the one way out, for sweeps and searches alike."""
