"""Every operator whose inputs hold positions, extents, lengths or divisors."""

from tests.fuzz.hostile.subject import Subject
from tests.fuzz.hostile.table import extents, positions, tokens, windows

SUBJECTS: dict[str, Subject] = {
    one.name: one for module in (positions, windows, tokens, extents) for one in module.SUBJECTS
}
