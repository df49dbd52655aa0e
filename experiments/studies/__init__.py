"""Studies: questions that were answered once, on the date that their README names."""
