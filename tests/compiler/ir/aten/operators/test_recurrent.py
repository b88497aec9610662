"""Recurrent against torch, the axes symbolic."""

from torch import nn

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_lstm() -> None:
    check(nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True), (FLOATS, "n,n+1,4"))


def test_gru() -> None:
    check(nn.GRU(4, 5, bidirectional=True), (FLOATS, "n,n+1,4"))


def test_rnn() -> None:
    check(nn.RNN(4, 5, bias=False), (FLOATS, "n,n+1,4"))


def test_gruc() -> None:
    check(nn.GRUCell(4, 5), (FLOATS, "n,4"))


def test_lstmc() -> None:
    check(nn.LSTMCell(4, 5), (FLOATS, "n,4"))


def test_mha() -> None:
    check(
        nn.MultiheadAttention(8, 2, batch_first=True),
        (FLOATS, "2,n,8"),
        (FLOATS, "2,n,8"),
        (FLOATS, "2,n,8"),
    )
