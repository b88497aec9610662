"""The services of the compose file, running: from images where they are built here, else from this
machine's own Redis and PostgreSQL.
"""

import pwd
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tools.images.building import Builder, Image
from tools.images.compose import Health, Service
from tools.images.container import Container, Spec

START_S = 300
ROOTS = Path("/mnt")
"""Where images are mounted for containers; buildah's own folders are closed to other users."""
_HOST = ("usr", "etc")
_LINKS = ("bin", "sbin", "lib", "lib64")
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class Deployment:
    """Containers in `folder`; every path below it can be reached by any user."""

    def __init__(self, folder: Path, builder: Builder, services: list[Service]) -> None:
        self.folder = folder
        self.builder = builder
        self.services = services
        self.specs: dict[str, Spec] = {}
        self.running: dict[str, Container] = {}
        self._mounted: list[str] = []
        self.hosts = folder / "hosts"
        names = " ".join(service.name for service in services)
        self.hosts.write_text(f"127.0.0.1 localhost {names}\n")

    def __enter__(self) -> "Deployment":
        try:
            for service in self.services:
                self._start(service)
            for service in self.services:
                self._wait(service)
        except BaseException as error:
            self.__exit__(error)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        if any(exception):
            for name, container in self.running.items():
                print(f"{name} printed:\n{container.log.read_text(errors='replace')[-4000:]}")
        self.stop()
        for root in ROOTS.iterdir():
            subprocess.run(["umount", str(root)], check=True)
            root.rmdir()
        for name in self._mounted:
            self.builder.remove(name)
        self._mounted = []

    def stop(self) -> dict[str, bool]:
        """End all, those that wait for others first; whether each ended in time."""
        ended = {}
        for name in reversed(self.running):
            ended[name] = self.running[name].stop()
            self.running[name].release()
        self.running = {}
        return ended

    def _start(self, service: Service) -> None:
        for name in service.after:
            self._wait(next(each for each in self.services if each.name == name))
        words = self._built(service) if service.dockerfile else self._published(service)
        log = self.folder / f"{service.name}.log"
        self.running[service.name] = Container(self.specs[service.name], words, log)

    def _built(self, service: Service) -> tuple[str, ...]:
        """Prepare a service of an image that was built; what it runs."""
        container, merged = self.builder.root(service.image)
        self._mounted.append(container)
        root = ROOTS / service.name
        root.mkdir()
        subprocess.run(["mount", "--bind", str(merged), str(root)], check=True)
        image = self.builder.image(service.image)
        user, _, group = service.user.partition(":")
        self.specs[service.name] = Spec(
            service,
            (int(user), int(group)),
            ("--ro-bind", str(root), "/"),
            self._volumes(service, image, root),
            {**image.environment, **service.environment},
            self.hosts,
        )
        return service.command or image.command

    def _volumes(self, service: Service, image: Image, root: Path) -> dict[str, Path]:
        """A volume that is empty begins with what the image has at its path."""
        undeclared = set(image.volumes) - set(service.volumes)
        if undeclared:
            raise SystemExit(f"{service.name}: no volume for {sorted(undeclared)}")
        results = {}
        for path, name in service.volumes.items():
            folder = self.folder / "volumes" / name
            if not folder.exists():
                folder.parent.mkdir(exist_ok=True)
                subprocess.run(["cp", "-a", f"{root}{path}", str(folder)], check=True)
            results[path] = folder
        return results

    def _published(self, service: Service) -> tuple[str, ...]:
        """Prepare Redis or PostgreSQL with the programs of this machine; what it runs."""
        account = pwd.getpwnam(service.user)
        volumes = {}
        for path, name in service.volumes.items():
            volumes[path] = self.folder / "volumes" / name
            volumes[path].mkdir(parents=True)
            volumes[path].chmod(0o700)
            shutil.chown(volumes[path], account.pw_uid, account.pw_gid)
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        path = ":".join([*map(str, programs[-1:]), _PATH])
        binds = [word for name in _HOST for word in ("--ro-bind", f"/{name}", f"/{name}")]
        links = [word for name in _LINKS for word in ("--symlink", f"usr/{name}", f"/{name}")]
        self.specs[service.name] = Spec(
            service,
            (account.pw_uid, account.pw_gid),
            (*binds, *links),
            volumes,
            {"PATH": path, **service.environment},
            self.hosts,
        )
        return service.command or ("sh", "-ec", _POSTGRES)

    def _wait(self, service: Service) -> None:
        """Return once its health check passes."""
        health = self.health(service)
        container = self.running[service.name]
        deadline = time.monotonic() + START_S
        while wrong := container.check(health.test):
            if not container.alive() or time.monotonic() > deadline:
                raise SystemExit(f"{service.name} is not healthy: {wrong[-500:]}")
            time.sleep(1)

    def health(self, service: Service) -> Health:
        """The compose file's health check, else the image's."""
        return service.health or self.builder.image(service.image).health

    def environment(self, name: str) -> Mapping[str, str]:
        """The environment of a service's processes."""
        return self.specs[name].environment


_POSTGRES = """
data=/var/lib/postgresql/data
printf %s "$POSTGRES_PASSWORD" > /tmp/password
initdb -D $data -U "$POSTGRES_USER" -A scram-sha-256 --pwfile=/tmp/password -E UTF8 --locale=C
echo "CREATE DATABASE \\"$POSTGRES_DB\\"" | postgres --single -D $data postgres
exec postgres -D $data -c unix_socket_directories=/var/run/postgresql
"""
"""What the published image's entry point does with an empty volume."""
