"""How far a plan is provably from the optimum, on windows of the authors' workload and of a diffusion service."""
