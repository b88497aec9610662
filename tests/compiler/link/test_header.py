"""The header of a static archive: names that C takes, comments that a model cannot end."""

from pathlib import Path

import pytest

from compiler.errors import LinkError
from compiler.link.header import opener_of, prefix_of
from relaxd.contract.canonical import digest_of


@pytest.mark.parametrize(
    "name", ["m", "two words", "über-größe", "9lives", "", "x" * 200, "a/b*/c"]
)
def test_a_prefix_is_a_c_identifier(name: str) -> None:
    prefix = prefix_of(name, digest_of(b"one"))
    assert prefix.isidentifier()
    assert prefix.isascii()
    assert len(prefix) < 80
    assert prefix == prefix_of(name, digest_of(b"one")) != prefix_of(name, digest_of(b"two"))


def test_a_header_without_an_opener_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.h").write_text("int x;\n")
    with pytest.raises(LinkError) as caught:
        opener_of(tmp_path / "model.h")
    assert caught.value.code == "link.bad_header"
    (tmp_path / "model.h").write_text("static inline int relaxd_m_open(TVMFFIObjectHandle *e) {")
    assert opener_of(tmp_path / "model.h") == "relaxd_m_open"
