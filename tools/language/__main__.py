"""Refuses the words that docs/glossary.md replaces: `python -m tools.language`.

Folders may keep as many as `baseline.json` counts, and none may get more; pages have none.
`--update` lowers the counts to what there is, also where code has moved to another folder. After
the merge of branches that did not know the counts, remove `baseline.json`, update, and review the
difference. PATH lists all findings of a file or folder.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.language.findings import Counts, Exemption, Finding, beyond, count, find, totals
from tools.language.glossary import read_rules
from tools.language.sources import read_sources

ROOT = Path(__file__).parents[2]
HERE = Path("tools/language")


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Exit status 0 if no folder has more findings than its baseline, 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="list all findings below PATH")
    parser.add_argument("--update", action="store_true", help="lower the baseline to what there is")
    options = parser.parse_args(arguments)
    findings = sorted(collect(root), key=lambda one: (one.path, one.line, one.rule))
    if options.paths:
        listed = [one for one in findings if _below(one.path, options.paths)]
        print(*listed, sep="\n")
        return 0
    file = root / HERE / "baseline.json"
    baseline = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    counts = count(findings)
    if options.update:
        return _update(file, counts, baseline)
    return _compare(findings, counts, baseline or {})


def collect(root: Path) -> Iterator[Finding]:
    """All findings below `root`, without those that are exempt; raises ValueError for an exception
    that nothing needs.
    """
    rules = read_rules(root / "docs" / "glossary.md")
    file = root / HERE / "exceptions.toml"
    exemptions = read_exemptions(file)
    unused = set(exemptions)
    for source in read_sources(root):
        for finding in find(source, rules):
            covering = {each for each in exemptions if each.covers(finding)}
            unused -= covering
            if not covering:
                yield finding
    for each in unused:
        raise ValueError(f"{file}: nothing needs the exception for {each.rule} in {each.path}")


def read_exemptions(file: Path) -> list[Exemption]:
    """The exceptions; raises ValueError where one has no reason."""
    entries = tomllib.loads(file.read_text(encoding="utf-8")).get("exception", [])
    exemptions = [Exemption(**entry) for entry in entries]
    for one in exemptions:
        if not one.reason.strip():
            raise ValueError(f"{file}: the exception for {one.rule} in {one.path} has no reason")
    return exemptions


def _compare(findings: Sequence[Finding], counts: Counts, baseline: Counts) -> int:
    more = list(beyond(counts, baseline))
    for folder, rule in more:
        allowed = baseline.get(folder, {}).get(rule, 0)
        print(f"{folder}: {counts[folder][rule]} of {rule!r}, {allowed} allowed:")
        print(
            *(f"  {one}" for one in findings if (one.folder, one.rule) == (folder, rule)), sep="\n"
        )
    if more:
        print("Say it in the words of docs/glossary.md. Code that moved takes --update.")
        return 1
    left, before = (sum(totals(each).values()) for each in (counts, baseline))
    if left < before:
        print(f"{before - left} findings fewer: lower the baseline with --update.")
    print(f"no folder has more old words than its baseline ({left} are left)")
    return 0


def _update(file: Path, counts: Counts, baseline: Counts | None) -> int:
    if baseline is not None:
        old = totals(baseline)
        more = [rule for rule, many in totals(counts).items() if many > old.get(rule, 0)]
        if more:
            print(f"not updated, there are more than before of: {', '.join(more)}")
            return 1
    lines = (f"{json.dumps(folder)}: {json.dumps(rules)}" for folder, rules in counts.items())
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{sum(totals(counts).values())} findings in {len(counts)} folders")
    return 0


def _below(path: Path, paths: Sequence[str]) -> bool:
    return any(path.is_relative_to(one) for one in paths)


if __name__ == "__main__":
    sys.exit(main())
