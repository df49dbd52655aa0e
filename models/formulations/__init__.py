"""The mathematics: the joint problem as formulations for solvers, built from shared, solver-free parts."""
