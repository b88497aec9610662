"""Every operator whose inputs hold positions, extents, lengths or divisors."""

from itertools import chain

from tests.fuzz.hostile.subject import BaseSubject
from tests.fuzz.hostile.table import extents, positions, programs, tokens, windows

SUBJECTS: dict[str, BaseSubject] = {
    subject.name: subject
    for subject in chain(
        positions.SUBJECTS, windows.SUBJECTS, tokens.SUBJECTS, extents.SUBJECTS, programs.SUBJECTS
    )
}
