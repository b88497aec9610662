"""The Relax graph under construction: values, programs, checks, inputs and outputs."""
