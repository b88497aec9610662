"""Adapters of the use cases to the outside: the doorbell, the message folder, the compiler."""
