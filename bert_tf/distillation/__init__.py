"""Distillation as a command: student, trainings, and what came of them."""
