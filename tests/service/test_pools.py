"""Pools, as RELAXD_POOLS and RELAXD_CAPABILITIES name them."""

import pytest

from service.errors import InvalidSettings
from service.pools import Pool, expand, known_capabilities, read_pools
from service.settings import read_settings


def test_patterns_add_and_remove() -> None:
    assert expand("cuda-*, raw-cuda") == ("cuda-sm80", "cuda-sm89", "cuda-sm90", "raw-cuda")
    assert set(known_capabilities()) - set(expand("*,!cuda-*")) == set(expand("cuda-*"))
    assert "inspect" in expand("*")


def test_pools_have_a_name_patterns_and_what_another_pool_takes() -> None:
    assert read_pools("arm=aarch64 spot:4=aarch64*") == (
        Pool("arm", ("aarch64",)),
        Pool("spot", ("aarch64", "aarch64-v8.2"), above=4),
    )
    assert read_pools("") == ()


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("POOLS", "cuda", "cuda is not a pool"),
        ("POOLS", "a:x=*", "a:x=. is not a pool"),
        ("POOLS", "a=*,!*", "has no capabilities"),
        ("POOLS", "a=native a=inspect", "the same name"),
        ("POOLS", "a=cuda-sm999", "no capability is called cuda-sm999"),
        ("CAPABILITIES", "gpu", "no capability is called gpu"),
        ("CAPABILITIES", "*,!*", "leaves no capability"),
    ],
)
def test_a_mistake_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, named: str
) -> None:
    monkeypatch.setenv(f"RELAXD_{variable}", value)
    with pytest.raises(InvalidSettings, match=f"RELAXD_{variable}: .*{named}"):
        read_settings()
