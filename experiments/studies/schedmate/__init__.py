"""What estimates of run times are worth to the schedulers of clusters, as SchedMate makes them."""
