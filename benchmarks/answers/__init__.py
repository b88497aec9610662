"""What language models answer: to the reference's words, soon behind a known beginning, and to many
clients at once.
"""
