from compiler.targets import registry
from tools.targets import PAGE, page


def test_the_page_lists_the_registry() -> None:
    text = PAGE.read_text()
    assert page(text) == text, "run `python -m tools.targets`"
    assert all(f"| `{target.name}` |" in text for target in registry() if target.name != "native")
