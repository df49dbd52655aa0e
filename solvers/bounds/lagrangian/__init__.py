"""Lagrangian bound: the time-indexed residency relaxation, priced so that jobs and models separate.

Time is cut into slots. Per GPU class and slot there are prices, at least 0, on compute time, on copy time, on memory,
and on "tasks that use a model run only while it is resident". Given prices, every job is a cheapest path through a
tree (`job_paths`), every model on a GPU a shortest path through off, loading and on (`model_paths`), and their sum
less the price of all capacity is a lower bound, whatever the prices (`evaluation`). `ascent` looks for good ones.
"""
