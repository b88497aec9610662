"""Runs untrusted work in fresh, confined, killable processes, and the messages between
them and us.
"""
