from pathlib import Path

from tools.image_sbom import Package, debian_packages, document, python_packages

STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library
 Package: not a field

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


def test_what_dpkg_lists_as_installed(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(STATUS)
    purl = "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64"
    assert list(debian_packages(status)) == [Package("libc6", "2.36-9+deb12u10", purl)]


def test_what_is_installed_for_python(tmp_path: Path) -> None:
    metadata = tmp_path / "Some_Thing-1.5.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: Some_Thing\nVersion: 1.5\n")
    results = list(python_packages(str(tmp_path)))
    assert results == [Package("some-thing", "1.5", "pkg:pypi/some-thing@1.5")]


def test_the_image_contains_each_package_once_and_equal_images_have_equal_documents() -> None:
    one, two = Package("a", "1", "pkg:pypi/a@1"), Package("b", "2", "pkg:pypi/b@2")
    created = document("relaxd-api", [two, one, two])
    assert created == document("relaxd-api", [one, two])
    assert created["documentNamespace"] != document("relaxd-api", [one])["documentNamespace"]
    assert [package["name"] for package in created["packages"]] == ["relaxd-api", "a", "b"]
    contained = [
        each for each in created["relationships"] if each["relationshipType"] == "CONTAINS"
    ]
    listed = {package["SPDXID"] for package in created["packages"][1:]}
    assert {each["relatedSpdxElement"] for each in contained} == listed
