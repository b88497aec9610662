"""Tags and referrers."""

import pytest

from artifacts.errors import InvalidDigest
from artifacts.references import References
from relaxd.contract.canonical import digest_of

FIRST, SECOND, SUBJECT = (digest_of(name) for name in (b"one", b"other", b"subject"))


@pytest.fixture
def references(records):
    return References(records)


def test_a_tag_moves(references):
    assert references.resolve("relaxd/a", "v1") is None
    references.tag("relaxd/a", "v1", FIRST)
    references.tag("relaxd/a", "v1", SECOND)
    references.tag("relaxd/a", "latest", FIRST)
    assert references.resolve("relaxd/a", "v1") == SECOND
    assert references.tags("relaxd/a") == ["latest", "v1"]


def test_repositories_are_apart_even_when_nested(references):
    references.tag("relaxd/a", "v1", FIRST)
    references.tag("relaxd/a/v1", "v2", SECOND)
    assert (
        references.tags("relaxd"),
        references.tags("relaxd/a"),
        references.tags("relaxd/a/v1"),
    ) == ([], ["v1"], ["v2"])


def test_referrers_are_listed_by_subject(references):
    for digest in (SECOND, FIRST, FIRST):
        references.refer("relaxd/a", SUBJECT, digest)
    assert references.referrers("relaxd/a", SUBJECT) == sorted([FIRST, SECOND])
    assert (
        references.referrers("relaxd/a", FIRST) == references.referrers("relaxd/b", SUBJECT) == []
    )


def test_what_is_named_is_a_digest(references):
    for act in (
        lambda: references.tag("relaxd/a", "v1", "x"),
        lambda: references.refer("relaxd/a", SUBJECT, "x"),
        lambda: references.referrers("relaxd/a", "x"),
    ):
        with pytest.raises(InvalidDigest):
            act()


def test_tags_of_another_source_stand_beside_those_of_the_store(references):
    class Others:
        def resolve(self, repository, tag):
            return FIRST if tag in ("b", "d") else None

        def tags(self, repository, after, most):
            return [tag for tag in ("b", "d") if tag > after][:most]

    for tag in ("a", "c", "d"):
        references.tag("relaxd/a", tag, SECOND)
    both = references.beside(Others())
    assert [both.resolve("relaxd/a", tag) for tag in "abcd"] == [SECOND, FIRST, SECOND, FIRST]
    assert both.tags("relaxd/a") == ["a", "b", "c", "d"]
    assert both.tags("relaxd/a", after="a", most=2) == ["b", "c"]
    assert references.tags("relaxd/a", most=0) == []
