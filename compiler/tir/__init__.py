"""The vocabulary for building loops: expressions, stages of a program, statements."""
