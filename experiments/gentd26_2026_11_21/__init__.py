"""A peak hour of a diffusion service: plan, bound and policies where loads take nearly as long as runs."""
