"""What is known of models and GPUs beside a log, in a file of its own: sizes, memory, bandwidth, prices, run times.

Modules: `document` (the file and its schema), `join` (requests of a log by model name become jobs of few workflows),
`target` (the scenario of such an import). ``open_models.yaml`` is the catalogue that comes with the package.
"""
