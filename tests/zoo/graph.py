"""To come."""

from tests.zoo.case import Case

CASES: tuple[Case, ...] = ()
