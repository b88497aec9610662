"""Repairs of what TVM's own passes give: orders that differ from process to process, marks that are
wrong.
"""
