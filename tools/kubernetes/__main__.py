"""`python -m tools.kubernetes`: check the manifests; `write`: generate those of the pools first."""

import sys

from tools.kubernetes.checking import FOLDER, mistakes
from tools.kubernetes.pools import read_description, render

if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        (FOLDER / "pools.yaml").write_text(render(read_description(FOLDER / "pools.toml")))
    wrong = list(mistakes())
    print("\n".join(wrong) or "the Kubernetes manifests fit their schemas and their images")
    sys.exit(bool(wrong))
