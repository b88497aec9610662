"""Any program of stages that no other family matches."""
