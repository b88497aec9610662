"""Every case of the zoo by its key."""

from tests.zoo import generative, graph, packaged, speech, text, vision

CASES = {case.key: case for family in (packaged, vision, text, generative, speech, graph) for case in family.CASES}
