"""Programs of torch.export: the reader of `.pt2` archives, and their way into the operators that
TorchScript has too.
"""
