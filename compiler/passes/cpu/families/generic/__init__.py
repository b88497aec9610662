"""Any program of stages: what no other family takes."""
