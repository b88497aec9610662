import json
from pathlib import Path

import pytest

from relaxd.client.forge import (
    LONGEST,
    CommentError,
    GitHub,
    GitLab,
    NoPullRequest,
    find_forge,
    write_comment,
)
from tests.support.forge import BOT, StandIn, serve_stand_in

MARKER = "<!-- relaxd ci: relaxd.toml -->"
PERSON = {"id": 7, "type": "User"}


def github(forge: StandIn) -> GitHub:
    return GitHub(f"{forge.url}/api/v3", "secret", "team/models", 12)


def test_the_comment_on_github_is_replaced() -> None:
    with serve_stand_in() as forge:
        for _ in range(100):
            forge.add("looks good", PERSON)
        forge.add(f"{MARKER}\nforged", PERSON)
        assert write_comment(github(forge), MARKER, "first").endswith("/comment/102")
        write_comment(github(forge), MARKER, "second")
        assert [(one.method, one.path) for one in forge.written] == [
            ("POST", "/api/v3/repos/team/models/issues/12/comments"),
            ("PATCH", "/api/v3/repos/team/models/issues/comments/102"),
        ]
        assert forge.comments[101]["body"] == f"{MARKER}\nsecond"
        assert forge.comments[100]["body"] == f"{MARKER}\nforged", "it is somebody else's"
        assert {one.token for one in forge.asked} == {"Bearer secret"}


def test_the_comment_of_a_users_token_is_found_by_its_user() -> None:
    with serve_stand_in(user=PERSON, author=PERSON) as forge:
        forge.add(f"{MARKER}\na bot's", BOT)
        write_comment(github(forge), MARKER, "first")
        write_comment(github(forge), MARKER, "second")
        assert [one["body"] for one in forge.comments] == [
            f"{MARKER}\na bot's",
            f"{MARKER}\nsecond",
        ]


def test_the_note_on_gitlab_is_replaced() -> None:
    with serve_stand_in(user={"id": 5}, author={"id": 5}) as forge:
        merge_request = GitLab(f"{forge.url}/api/v4", "secret", 3, 4)
        forge.add(f"{MARKER}\nforged", {"id": 6})
        write_comment(merge_request, MARKER, "first")
        write_comment(merge_request, MARKER, "second")
        path = "/api/v4/projects/3/merge_requests/4/notes"
        assert [(one.method, one.path) for one in forge.written] == [
            ("POST", path),
            ("PUT", f"{path}/2"),
        ]
        assert forge.comments[1]["body"] == f"{MARKER}\nsecond"


def test_a_long_comment_is_cut_at_a_line() -> None:
    with serve_stand_in() as forge:
        write_comment(github(forge), MARKER, "| a row |\n" * LONGEST)
        body = forge.comments[0]["body"]
        assert len(body) < LONGEST + 100
        assert body.endswith("| a row |\n\nThe rest is in the summary of the job.\n")


@pytest.mark.parametrize("refuses", [403, 422, 500])
def test_a_refused_comment_says_why_without_the_token(refuses: int) -> None:
    with (
        serve_stand_in(refuses=refuses) as forge,
        pytest.raises(CommentError, match=f"{refuses}: Resource not accessible") as caught,
    ):
        write_comment(github(forge), MARKER, "first")
    assert "secret" not in str(caught.value)


@pytest.fixture
def event(tmp_path: Path) -> str:
    path = tmp_path / "event.json"
    path.write_text(json.dumps({"pull_request": {"number": 12}}))
    return str(path)


def on_github(event: str, **variables: str) -> dict[str, str]:
    plain = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_PATH": event, "GITHUB_TOKEN": "t"}
    return {**plain, "GITHUB_REPOSITORY": "team/models", **variables}


def on_gitlab(**variables: str) -> dict[str, str]:
    plain = {"GITLAB_CI": "true", "CI_MERGE_REQUEST_IID": "4", "CI_PROJECT_ID": "3"}
    plain |= {"CI_API_V4_URL": "https://gitlab.example/api/v4", "GITLAB_TOKEN": "t"}
    return {**plain, **variables}


def test_jobs_of_both_forges_are_known(event: str) -> None:
    assert find_forge(on_github(event)) == GitHub("https://api.github.com", "t", "team/models", 12)
    assert find_forge(on_gitlab()) == GitLab("https://gitlab.example/api/v4", "t", 3, 4)


@pytest.mark.parametrize(
    "variables", [{}, {"GITHUB_ACTIONS": "true"}, on_gitlab(CI_MERGE_REQUEST_IID="")]
)
def test_a_job_without_a_pull_request(variables: dict[str, str]) -> None:
    with pytest.raises(NoPullRequest):
        find_forge(variables)


@pytest.mark.parametrize(
    "url",
    [
        "http://github.example/api/v3",
        "https://user:word@github.example",
        "https://github.example?a=b",
        "https://[::1",
        "ftp://127.0.0.1",
        "github.example",
    ],
)
def test_a_token_goes_to_no_such_url(event: str, url: str) -> None:
    with pytest.raises(CommentError, match="GITHUB_API_URL"):
        find_forge(on_github(event, GITHUB_API_URL=url))


@pytest.mark.parametrize(
    ("name", "value"),
    [("GITHUB_TOKEN", ""), ("GITHUB_TOKEN", "a\nb"), ("GITHUB_REPOSITORY", "team/../x/y")],
)
def test_a_variable_that_cannot_be_right(event: str, name: str, value: str) -> None:
    with pytest.raises(CommentError, match=name) as caught:
        find_forge(on_github(event, **{name: value}))
    assert not value or value not in str(caught.value)
