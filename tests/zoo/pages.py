"""Pictures of printed text, as detectors of text see them: on noise they answer with nothing."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tests.zoo.case import Feed, Sizes

_ROWS = ("01110 10001 11111 10001 10001", "11110 10001 11110 10001 11110",
         "01111 10000 10000 10000 01111", "11111 10000 11110 10000 11111",
         "10001 10001 11111 10001 10001", "10000 10000 10000 10000 11111",
         "01110 10001 10001 10001 01110", "11111 00100 00100 00100 00100")  # fmt: skip
_GLYPHS = np.asarray([[list(map(int, row)) for row in rows.split()] for rows in _ROWS], bool)
_DOT, _SPACES = 4, 0.2
_INK, _PAPER, _NOISE = -1.8, 2.2, 0.05


def print_pages(point: Sizes, generator: Generator) -> Feed:
    """`x`: float32[n,3,h,w], normalised pages of random letters, a fifth of them spaces."""
    letters = _letters(point["n"], point["h"], point["w"], generator)
    noise = _NOISE * generator.standard_normal([point["n"], 3, point["h"], point["w"]])
    return {"x": np.where(letters[:, None], _INK, _PAPER) + noise}


def _letters(n: int, height: int, width: int, generator: Generator) -> NDArray[np.bool_]:
    """Where the ink is: letters of 5x5 dots, one apart, in lines three apart."""
    cells = np.pad(_GLYPHS, ((0, 0), (1, 2), (1, 0))).repeat(_DOT, 1).repeat(_DOT, 2)
    count, tall, wide = cells.shape
    lines, columns = -(-height // tall), -(-width // wide)
    chosen = generator.integers(0, count, [n, lines, columns])
    inked = generator.random([n, lines, columns]) >= _SPACES
    inked[:, 0, 0] = True  # the least page has room for one letter
    page = (cells[chosen] & inked[..., None, None]).transpose(0, 1, 3, 2, 4)
    return page.reshape(n, lines * tall, columns * wide)[:, :height, :width]
