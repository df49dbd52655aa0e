"""A library of instances with best known plans and bounds, every one of them checked."""
