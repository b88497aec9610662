"""Which engines take which real models with dynamic axes, and whether their answers are right."""
