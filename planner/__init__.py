"""Answers a person's question: what is read, what is answered, what is shown, and the command; see `truenorth`."""
