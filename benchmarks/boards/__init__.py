"""What libraries for micro-controllers take on the boards that qemu emulates."""
