"""Every case of the zoo by its key."""

from tests.zoo import (
    audio,
    decoders,
    encoders,
    generative,
    graph,
    hubs,
    images,
    packaged,
    programs,
    shipped,
    sounds,
    speech,
    t5,
    text,
    vision,
)

_FAMILIES = (
    *(packaged, shipped, vision, images, hubs, text, encoders, generative, decoders, t5),
    *(speech, sounds, audio, graph),
)

_EXPORTED = [case for family in _FAMILIES for case in family.CASES]
CASES = {case.key: case for case in (*_EXPORTED, *programs.cases(_EXPORTED))}
