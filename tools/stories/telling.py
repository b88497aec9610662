"""Runs the blocks of a tutorial one command at a time, and writes down what a reader sees."""

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.docs.blocks import SHELL, Block, Command, Kind
from tools.stories.environments import Environment

URL = "http://127.0.0.1:8484"
_TERMINAL = {"COLUMNS": "80", "TERM": "dumb"}
_EXPORT = re.compile(r"export ([A-Z_]+)=(\S+)")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DIGEST_MARK = "sha256:..."
Write = Callable[[str], None]


class Stumble(Exception):
    """A command that did not do what the tutorial says."""


@dataclass
class Teller:
    """A reader in `folder`, who types commands in one environment and runs Python in another.

    url: the service at the tutorials' address. digest: the last one that a command printed.
    variables: those that the reader exported.
    """

    folder: Path
    shell: Environment
    python: Environment
    url: str
    write: Write
    digest: str = _DIGEST_MARK
    variables: dict[str, str] = field(default_factory=dict)

    def tell(self, block: Block) -> None:
        """Runs the block; raises Stumble where it does not do what the page says."""
        if before := block.marks.get(Kind.BEFORE):
            self.run(Command(before), 0, self.shell, shown=False)
        if block.info:
            (self.folder / block.info).write_text(block.body)
            self.write(f"$ cat {block.info}\n{block.body}")
        elif block.language in SHELL:
            *most, last = block.commands
            for command in most:
                self.run(command, 0, self.shell)
            self.run(last, int(block.marks.get(Kind.FAILS, 0)), self.shell)
        elif block.language == "python":
            (self.folder / "step.py").write_text(self._filled(block.body))
            self.write("".join(f"    {line}\n" for line in block.body.splitlines()))
            self.run(Command("python step.py"), 0, self.python)

    def run(
        self, command: Command, code: int, environment: Environment, *, shown: bool = True
    ) -> None:
        """Types one command; raises Stumble if its exit code or what it prints is another."""
        line = self._filled(command.line)
        if exported := _EXPORT.fullmatch(line):
            self.variables[exported[1]] = exported[2]
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self.folder,
            env=environment.variables({**_TERMINAL, **self.variables}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        took = f"# {time.monotonic() - began:.1f} s{f', exit code {code}' if code else ''}"
        if shown:
            self.write(f"$ {line}\n{done.stdout}{took}\n")
        if done.returncode != code:
            raise Stumble(f"{line}: exit code {done.returncode}, not {code}\n{done.stdout}")
        for missing in command.missing_lines(done.stdout):
            raise Stumble(f"{line}: does not print {missing!r}")
        self.digest = ([self.digest, *_DIGEST.findall(done.stdout)])[-1]

    def _filled(self, text: str) -> str:
        text = text.replace(URL, self.url).replace(urlsplit(URL).netloc, urlsplit(self.url).netloc)
        return text.replace(_DIGEST_MARK, self.digest)
