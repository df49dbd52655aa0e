"""Every policy on many workloads, with confidence: see README.md."""
