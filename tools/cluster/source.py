"""Builds Kubernetes from Debian's source package, which alone among Debian's has the servers: with
Debian's Go, once for each version.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

VERSION = "1.20.5+really1.20.2-1.1+deb12u1"
RELEASE = "v1.20.2"
PROGRAMS = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"),
    "kubectl",
)
_APT = Path("/etc/apt")
REFLECT = Path("/usr/share/gocode/src/github.com/modern-go/reflect2")
"""Debian's own: the one in the source package ends the API server by a segmentation fault at its
first custom resource, as it knows the runtime of an older Go.
"""
_PACKAGE = "k8s.io/kubernetes"
_GENERATED = "pkg/generated/openapi"
_OF_OTHERS = ("code-generator", "sample-apiserver", "sample-controller")
_WITHOUT = "providerless,dockerless"
"""Leaves out clouds and Docker, a third of the build."""
_STAMP = {"gitMajor": "1", "gitMinor": "20", "gitVersion": RELEASE}


class Source:
    """The source package in a folder, and the programs that are made from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / VERSION
        self.programs = self.folder / "bin"
        self._tree = self.folder / "go/src" / _PACKAGE

    def build(self) -> None:
        """Make the programs that are missing, by one niced process: a quarter of an hour."""
        if self.is_built():
            return
        if not self._tree.exists():
            self._unpack()
        if not list((self._tree / _GENERATED).glob("zz_generated*")):
            self._describe_types()
        self.programs.mkdir(exist_ok=True)
        for name in self._missing():
            print(f"building {name} of Kubernetes {VERSION}", flush=True)
            self._compile(f"cmd/{name}", self.programs / name)
        for path in self.folder.iterdir():
            if path.is_dir() and path != self.programs:
                shutil.rmtree(path)
            elif path.is_file():
                path.unlink()

    def is_built(self) -> bool:
        """True if no program is missing."""
        return not self._missing()

    def _missing(self) -> list[str]:
        return [name for name in PROGRAMS if not (self.programs / name).exists()]

    def _unpack(self) -> None:
        """Take the source from the mirror that apt is set to, by lists of its own."""
        apt = self.folder / "apt"
        for name in ("lists/partial", "parts"):
            (apt / name).mkdir(parents=True, exist_ok=True)
        for path in [_APT / "sources.list", *(_APT / "sources.list.d").glob("*")]:
            if path.is_file():
                (apt / "parts" / path.name).write_text(name_sources(path.read_text()))
        settings = {
            "Dir::Etc::sourcelist": os.devnull,
            "Dir::Etc::sourceparts": str(apt / "parts"),
            "Dir::State::lists": str(apt / "lists"),
            "APT::Sandbox::User": "root",
        }
        options = [f"--option={key}={value}" for key, value in settings.items()]
        self._run("apt-get", *options, "update")
        self._run("apt-get", *options, "source", "--download-only", f"kubernetes={VERSION}")
        (described,) = self.folder.glob("*.dsc")
        partial = self._tree.with_name("partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.parent.mkdir(parents=True, exist_ok=True)
        self._run("dpkg-source", "--extract", described.name, str(partial))
        vendored = partial / "vendor/github.com/modern-go/reflect2"
        shutil.rmtree(vendored)
        shutil.copytree(REFLECT, vendored)
        partial.rename(self._tree)

    def _describe_types(self) -> None:
        """Generate the one file that the source package lacks."""
        generator = self.folder / "openapi-gen"
        self._compile("vendor/k8s.io/kube-openapi/cmd/openapi-gen", generator)
        tagged = sorted({_PACKAGE + "/" + name for name in self._tagged()})
        self._run(
            *(str(generator), "--logtostderr", "--input-dirs", ",".join(tagged)),
            *("--output-package", f"{_PACKAGE}/{_GENERATED}"),
            *("--output-base", str(self.folder / "go/src")),
            *("--output-file-base", "zz_generated.openapi", "--report-filename", os.devnull),
            *("--go-header-file", "hack/boilerplate/boilerplate.generatego.txt"),
            folder=self._tree,
        )

    def _tagged(self) -> list[str]:
        """The packages whose types the API describes."""
        staged = self._tree / "staging/src"
        return [
            str(Path("vendor" if root == staged else ".") / path.parent.relative_to(root))
            for root in (staged, self._tree)
            for path in (root / ("k8s.io" if root == staged else "pkg")).rglob("*.go")
            if not set(_OF_OTHERS) & set(path.parts) and "+k8s:openapi-gen=" in path.read_text()
        ]

    def _compile(self, package: str, program: Path) -> None:
        stamps = [
            f"-X {_PACKAGE}/vendor/k8s.io/{where}/version.{key}={value}"
            for where in ("component-base", "client-go/pkg")
            for key, value in _STAMP.items()
        ]
        partial = program.with_suffix(".partial")
        command = [
            "go",
            "build",
            "-p=1",
            "-tags",
            _WITHOUT,
            "-ldflags",
            " ".join(["-s -w", *stamps]),
        ]
        self._run(
            *("nice", "-n", "19", *command, "-o", str(partial), f"{_PACKAGE}/{package}"),
            folder=self._tree,
        )
        partial.rename(program)

    def _run(self, *words: str, folder: Path | None = None) -> None:
        settings = {
            "GOPATH": str(self.folder / "go"),
            "GOCACHE": str(self.folder / "cache"),
            "GO111MODULE": "off",
            "CGO_ENABLED": "0",
            "GOFLAGS": "",
        }
        environment = {**os.environ, **settings}
        done = subprocess.run(words, check=False, cwd=folder or self.folder, env=environment)
        if done.returncode:
            hint = (
                "; Debian 12's mirror has to be among its sources" if words[0] == "apt-get" else ""
            )
            raise SystemExit(f"{' '.join(words)[:200]}: ended by {done.returncode}{hint}")


def name_sources(text: str) -> str:
    """Apt's list of package repositories, in either of its forms, as one of their sources."""
    return re.sub(r"^(Types:.*|deb(?=\s))", _of_sources, text, flags=re.MULTILINE)


def _of_sources(match: re.Match[str]) -> str:
    return "Types: deb-src" if match[0].startswith("Types:") else "deb-src"
