"""Things that a build may do, and its library may not while it is verified and profiled."""

from typing import Any

from tests.compiler.isolation.attacks.scene import Attack, Scene

NARROWED: dict[str, Attack] = {}


def denied_to_libraries(function: Attack) -> Attack:
    NARROWED[function.__name__] = function
    return function


@denied_to_libraries
def add_to_the_bundle(scene: Scene) -> Any:
    return (scene.inside / "libextra.so").write_bytes(b"x")


@denied_to_libraries
def replace_a_file_of_the_bundle(scene: Scene) -> Any:
    (scene.inside / "task" / "forged").write_bytes(b"x")
    (scene.inside / "task" / "forged").rename(scene.inside / "model.so")
    return True


@denied_to_libraries
def make_a_folder_in_the_bundle(scene: Scene) -> Any:
    (scene.inside / "folder").mkdir()
    return True


@denied_to_libraries
def remove_a_folder_of_the_bundle(scene: Scene) -> Any:
    (scene.inside / "spare").rmdir()
    return True
