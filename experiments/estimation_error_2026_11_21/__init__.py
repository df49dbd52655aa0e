"""What error in run-time estimates costs plans and online policies."""
