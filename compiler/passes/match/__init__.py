"""What passes over Relax graphs share: rewriters, and how operators and programs are recognised."""
