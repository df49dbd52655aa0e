"""Carry out plans and online policies, on a virtual clock or on devices; knows no solver."""
