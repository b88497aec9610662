from pathlib import Path

import pytest

from tools.images.compose import Health, interpolate, services

SECRETS = {"POSTGRES_PASSWORD": "one", "RELAXD_TOKEN": "two"}


def test_the_services_of_this_project() -> None:
    result = services(SECRETS)
    names = [service.name for service in result]
    assert set(names) == {"api", "worker", "redis", "postgres"}
    assert max(names.index(each) for each in ("redis", "postgres")) == 1
    by_name = {service.name: service for service in result}
    api, redis = by_name["api"], by_name["redis"]
    assert api.environment["RELAXD_DATABASE_URL"].startswith("postgresql+psycopg://relaxd:one@")
    assert api.environment["RELAXD_STORE_URL"] == "/var/lib/relaxd/store"
    assert api.user == "10001:10001"
    assert api.dockerfile == "docker/api.Dockerfile"
    assert api.command is None
    assert (api.memory, api.pids) == (2 << 30, 256)
    assert api.volumes == {"/var/lib/relaxd": "data"}
    assert redis.command is not None
    assert redis.command[0] == "redis-server"
    assert redis.tmpfs == {"/data": "size=64m", "/tmp": "size=16m"}
    assert redis.health == Health(("redis-cli", "ping"), 5.0, 5)
    assert by_name["worker"].grace == 30.0


def test_a_variable_is_required_where_the_file_says_so() -> None:
    with pytest.raises(KeyError, match="set RELAXD_TOKEN"):
        services({"POSTGRES_PASSWORD": "one"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}-${B:-b}", "1-b"),
        ("${A:-2}", "1"),
        ("${B:-}", ""),
        ("${B:-/var/lib}:8484", "/var/lib:8484"),
        ("plain", "plain"),
    ],
)
def test_variables_and_their_defaults(text: str, expected: str) -> None:
    assert interpolate(text, {"A": "1"}) == expected


def test_services_that_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "compose.yml"
    common = "image: x, user: y, mem_limit: 1m, pids_limit: 1"
    file.write_text(
        f"services:\n  a: {{{common}, depends_on: {{b: {{}}}}}}\n"
        f"  b: {{{common}, depends_on: {{a: {{}}}}}}\n"
    )
    with pytest.raises(ValueError, match="wait for each other"):
        services({}, file)
