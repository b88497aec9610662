"""The HTTP API: FastAPI over the Jobs facade; reaches neither tvm nor torch."""
