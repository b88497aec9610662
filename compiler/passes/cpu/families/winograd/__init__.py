"""3x3 convolutions by Winograd's F(4x4, 3x3)."""
