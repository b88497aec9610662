"""Comments on the pull request of a CI job, through the API of GitHub or GitLab."""

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from relaxd.client.transport import Transport
from relaxd.errors import RelaxdError, ServerError, ServerUnreachable

LONGEST = 60_000
"""Characters of a comment: GitHub takes 65,536."""
_PER_PAGE, _MOST_PAGES = 100, 50
_FORBIDDEN = 403


class CommentError(RelaxdError):
    """The comment could not be written."""

    code = "ci.comment_failed"


class NoPullRequest(RelaxdError):
    """The CI job belongs to no pull request."""

    code = "ci.no_pull_request"


class Forge(Protocol):
    """Comments of one pull request."""

    @property
    def url(self) -> str:
        """The API's URL."""
        ...

    @property
    def token(self) -> str:
        """The token that may write comments."""
        ...

    def path(self) -> str:
        """The path of the comments, from the API's URL on."""
        ...

    def edit(self) -> str:
        """The method that replaces a comment, at the comment's own path."""
        ...

    def comment_path(self, comment: int) -> str:
        """The path of one comment."""
        ...

    def is_own(self, comment: Mapping[str, Any], user: Mapping[str, Any] | None) -> bool:
        """True if `user`, None for one that the API does not tell, wrote the comment."""
        ...


@dataclass(frozen=True)
class GitHub:
    """https://docs.github.com/en/rest/issues/comments"""

    url: str
    token: str
    repository: str
    number: int

    def path(self) -> str:
        """See Forge."""
        return f"/repos/{self.repository}/issues/{self.number}/comments"

    def edit(self) -> str:
        """See Forge."""
        return "PATCH"

    def comment_path(self, comment: int) -> str:
        """See Forge."""
        return f"/repos/{self.repository}/issues/comments/{comment}"

    def is_own(self, comment: Mapping[str, Any], user: Mapping[str, Any] | None) -> bool:
        """See Forge; a job's own token is not told its user, which is a bot."""
        author = comment.get("user") or {}
        return author.get("type") == "Bot" if user is None else author.get("id") == user.get("id")


@dataclass(frozen=True)
class GitLab:
    """https://docs.gitlab.com/api/notes/#merge-requests"""

    url: str
    token: str
    project: int
    number: int

    def path(self) -> str:
        """See Forge."""
        return f"/projects/{self.project}/merge_requests/{self.number}/notes"

    def edit(self) -> str:
        """See Forge."""
        return "PUT"

    def comment_path(self, comment: int) -> str:
        """See Forge."""
        return f"{self.path()}/{comment}"

    def is_own(self, comment: Mapping[str, Any], user: Mapping[str, Any] | None) -> bool:
        """See Forge."""
        author = comment.get("author") or {}
        return user is not None and author.get("id") == user.get("id")


def find_forge(environment: Mapping[str, str]) -> Forge:
    """The pull request that the variables of a CI job name, and the token for it. Raises
    NoPullRequest, and CommentError for a variable that is absent or malformed.
    """
    if environment.get("GITHUB_ACTIONS") == "true":
        number = _pull_request(environment.get("GITHUB_EVENT_PATH", ""))
        url = environment.get("GITHUB_API_URL") or "https://api.github.com"
        repository = _require(environment, "GITHUB_REPOSITORY", r"[\w.-]+/[\w.-]+")
        token = _require(environment, "GITHUB_TOKEN", r"[\x21-\x7e]+")
        return GitHub(_checked(url, "GITHUB_API_URL"), token, repository, number)
    if environment.get("GITLAB_CI") == "true":
        if not environment.get("CI_MERGE_REQUEST_IID"):
            raise NoPullRequest("this pipeline belongs to no merge request")
        number = int(_require(environment, "CI_MERGE_REQUEST_IID", "[0-9]+"))
        url = _checked(_require(environment, "CI_API_V4_URL", r"[\x21-\x7e]+"), "CI_API_V4_URL")
        project = int(_require(environment, "CI_PROJECT_ID", "[0-9]+"))
        token = _require(environment, "GITLAB_TOKEN", r"[\x21-\x7e]+")
        return GitLab(url, token, project, number)
    raise NoPullRequest("this is not a job of GitHub Actions or GitLab CI")


def write_comment(forge: Forge, marker: str, text: str) -> str:
    """Write the comment that begins with `marker`, in place of one's own that does; its URL, empty
    where the forge names none. Raises CommentError.
    """
    body = {"body": _fitting(f"{marker}\n{text}")}
    transport = Transport(forge.url, token=forge.token)
    try:
        earlier = _find(transport, forge, marker)
        if earlier is None:
            written = transport.json("POST", forge.path(), json=body)
        else:
            written = transport.json(forge.edit(), forge.comment_path(earlier), json=body)
        return str(written.get("html_url") or "")
    except ServerError as error:
        said = str(error.problem.get("message") or error.message)[:200]
        raise CommentError(
            f"{forge.url} refused the comment with {error.status}: {said}",
            hint="the token has to be allowed to write comments on pull requests",
        ) from error
    except (ServerUnreachable, AttributeError, KeyError, TypeError, ValueError) as error:
        said = error.message if isinstance(error, RelaxdError) else "its answer is malformed"
        raise CommentError(f"{forge.url}: {said}") from error
    finally:
        transport.close()


def _find(transport: Transport, forge: Forge, marker: str) -> int | None:
    answer = transport.request("GET", "/user", accept=frozenset({_FORBIDDEN}))
    user = None if answer.status_code == _FORBIDDEN else answer.json()
    for comment in _comments(transport, forge.path()):
        if str(comment["body"]).startswith(marker) and forge.is_own(comment, user):
            return int(comment["id"])
    return None


def _comments(transport: Transport, path: str) -> Iterator[dict[str, Any]]:
    for page in range(1, _MOST_PAGES + 1):
        listed = transport.json("GET", path, params={"per_page": _PER_PAGE, "page": page})
        yield from listed
        if len(listed) < _PER_PAGE:
            return


def _fitting(text: str) -> str:
    """The text, or its first lines and a sentence that some are missing."""
    if len(text) <= LONGEST:
        return text
    lines = text[:LONGEST].rpartition("\n")[0]
    return f"{lines}\n\nThe rest is in the summary of the job.\n"


def _pull_request(path: str) -> int:
    try:
        return int(json.loads(Path(path).read_bytes())["pull_request"]["number"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoPullRequest("this run of a workflow belongs to no pull request") from error


def _require(environment: Mapping[str, str], name: str, form: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise CommentError(f"the variable {name} is not set")
    if not re.fullmatch(form, value):
        raise CommentError(f"the variable {name} is malformed")
    return value


def _checked(url: str, name: str) -> str:
    """The URL, if a token may be sent there: over https, or to this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise CommentError(f"{name} is not a URL") from error
    if parts.username is not None or parts.query or parts.fragment or not host:
        raise CommentError(f"{name} is not the URL of an API")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_local(host)):
        raise CommentError(f"{name} has to begin with https://: a token is sent there")
    return url


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
