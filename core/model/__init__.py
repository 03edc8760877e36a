"""What is asked and answered: queries, problems, answers."""
