"""`python -m tools.kubernetes`: check the manifests; exit status 1 for a mistake."""

import sys

from tools.kubernetes.checking import mistakes

if __name__ == "__main__":
    wrong = list(mistakes())
    print("\n".join(wrong) or "the Kubernetes manifests fit their schemas and their images")
    sys.exit(bool(wrong))
