"""Models in folders of Hugging Face's libraries, or tars of them: their files, checked, and the
decoder or encoder that they describe.
"""
