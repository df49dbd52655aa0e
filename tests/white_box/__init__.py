"""Tests that reach behind the public calls, into kernels, formulations and formats; the layout mirrors the source."""
