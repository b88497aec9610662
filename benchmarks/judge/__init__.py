"""How often verification refuses a right build, and how often it passes a planted fault."""
