"""The ModelProto itself: its nodes, opsets, weights, and rewrites of it."""
