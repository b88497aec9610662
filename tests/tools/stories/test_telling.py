"""The reader of the tutorials types what they say, and stumbles where they are untrue."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of
from tools.stories.environments import Environment
from tools.stories.telling import Stumble, Teller

DIGEST = "sha256:" + "ab" * 32
PAGE = f"""
<!-- snippet: before
echo hidden > made
-->
```console
$ export NAMED=value
$ cat made; echo $NAMED http://127.0.0.1:8484
hidden
value http...:9
$ echo {DIGEST}; echo "${{RELAXD_TOKEN-}}"
```

```toml relaxd.toml
a = 1
```

<!-- snippet: fails 4 -->
```console
$ cat relaxd.toml; echo sha256:...; exit 4
a = 1
```

```python
print("by", "Python")
```
"""


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Follows a page, and returns what its reader saw."""
    monkeypatch.setenv("RELAXD_TOKEN", "of this machine")
    folder, program = tmp_path / "reader", tmp_path / "environment" / "bin" / "python"
    folder.mkdir()
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "python $(cat $1)"\n')
    program.chmod(0o755)
    environment = Environment(tmp_path / "environment", tmp_path)

    def tell(text: str) -> str:
        page, seen = tmp_path / "page.md", list[str]()
        page.write_text(text)
        teller = Teller(folder, environment, environment, "http://127.0.0.1:9", seen.append)
        for block in blocks_of(page):
            teller.tell(block)
        return "\n".join(seen)

    return tell


def test_a_page_is_followed_one_command_at_a_time(follow: Callable[[str], str]) -> None:
    seen = follow(PAGE)
    assert "echo hidden" not in seen
    assert "hidden\nvalue http://127.0.0.1:9\n" in seen
    assert f'$ echo {DIGEST}; echo "${{RELAXD_TOKEN-}}"\n{DIGEST}\n\n' in seen
    assert f"a = 1\n{DIGEST}\n" in seen
    assert "exit code 4" in seen
    assert 'python print("by", "Python")' in seen


@pytest.mark.parametrize(
    ("block", "about"),
    [
        ("```console\n$ false\n```\n", "exit code 1, not 0"),
        ("<!-- snippet: fails 2 -->\n```console\n$ true\n```\n", "exit code 0, not 2"),
        ("```console\n$ echo one\ntwo\n```\n", "does not print 'two'"),
    ],
)
def test_a_reader_stumbles(follow: Callable[[str], str], block: str, about: str) -> None:
    with pytest.raises(Stumble, match=about):
        follow(block)
