"""Plans of the authors' workload where tasks run in batches."""
