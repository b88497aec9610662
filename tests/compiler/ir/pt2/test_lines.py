"""Which line of a node's stack trace errors quote."""

import pytest

from compiler.ir.pt2.lines import user_line, user_position

MINE = 'File "/home/me/net.py", line 12, in forward\n    return self.bert(ids)\n'
LIBRARY = (
    'File "/env/lib/python3.11/site-packages/transformers/models/bert.py", line 99, in forward\n'
    "    return self.dense(x)\n"
)
TORCH = (
    'File "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 134, in forward\n'
    "    return F.linear(input, self.weight, self.bias)\n"
)


@pytest.mark.parametrize(
    ("trace", "position"),
    [
        (MINE + LIBRARY + TORCH, "/home/me/net.py:12"),
        (
            LIBRARY + TORCH,
            "/env/lib/python3.11/site-packages/transformers/models/bert.py:99",
        ),
        (TORCH, "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py:134"),
        ("", None),
        ("no stack", None),
    ],
)
def test_the_innermost_line_nearest_to_the_users_code(trace: str, position: str | None) -> None:
    assert user_position(trace) == position


def test_the_text_of_the_line_is_quoted() -> None:
    assert user_line(MINE + TORCH) == "/home/me/net.py:12: return self.bert(ids)"
