"""The tutorials as newcomers follow them: from wheels, with nothing of this checkout."""
