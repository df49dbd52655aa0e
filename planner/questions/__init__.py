"""What can be asked: frozen records with defaults and help. `planner.answers.ask` knows who answers them."""
