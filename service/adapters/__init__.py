"""The outside world as the use cases see it: the doorbell, the message folder, the compiler."""
