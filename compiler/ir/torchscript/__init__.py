"""The TorchScript front end."""
