"""Tenants: who they are, what they may submit, read and grant."""
