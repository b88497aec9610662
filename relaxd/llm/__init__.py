"""Text from language models that keep their state: several requests at once, and an endpoint as
OpenAI's clients expect it.
"""

from relaxd.llm.cache_memory import CacheMemory
from relaxd.llm.engine import Engine
from relaxd.llm.generation import Generation, Piece
from relaxd.llm.grammar import Grammar
from relaxd.llm.sampling import Sampling
from relaxd.llm.speculation import Source, Speculation
from relaxd.llm.text import Text

__all__ = [
    "CacheMemory",
    "Engine",
    "Generation",
    "Grammar",
    "Piece",
    "Sampling",
    "Source",
    "Speculation",
    "Text",
]
