"""Shared by passes over Relax graphs: rewriters, and how operators and programs are recognised."""
