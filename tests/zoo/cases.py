"""Every case of the zoo by its key."""

from tests.zoo import generative, graph, packaged, speech, t5, text, vision

CASES = {
    case.key: case
    for family in (packaged, vision, text, generative, t5, speech, graph)
    for case in family.CASES
}
