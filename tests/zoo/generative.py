"""Models that generate: their prompts, their pasts and their encoders."""

from tests.zoo.case import Case

CASES: tuple[Case, ...] = ()
