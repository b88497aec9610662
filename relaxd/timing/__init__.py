"""Times engines in turns, each in a process of its own, and says what may be concluded."""
