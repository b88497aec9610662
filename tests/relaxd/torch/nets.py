"""Modules as users write them, some of which torch.export fixes to the example's sizes."""

import torch
from torch import Tensor, nn


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(10, 3, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x)
        return self.gru(states)[0]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1)

    def forward(self, ids: Tensor, pad: Tensor) -> Tensor:
        return self.layers(self.embed(ids), src_key_padding_mask=pad)


class Cast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        rows = int(x.shape[0])
        return x.reshape(rows * x.shape[1], -1)


class LoopMask(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        mask = torch.zeros(time, time)
        for i in range(time):
            mask[i, i + 1 :] = -8.0
        return x.sum(-1) + mask.sum(0)


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if sorted(x.flatten().tolist())[0] > 1e6:
            return x + 1
        return x - 1


class Rows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        rows = {i: x[:, i] for i in range(time)}
        return torch.stack([rows[i] for i in sorted(rows, key=lambda i: -i)], 1)


class Strided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(1, 2, 4, stride=4), nn.ConvTranspose2d(2, 1, 4, stride=4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.up(self.down(x))


class Nested(nn.Module):
    def forward(self, x: Tensor, extra: dict[str, Tensor], *rest: Tensor, scale: float) -> Tensor:
        return x + extra["b"] * scale + rest[0]


class Small(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] < 3:
            raise ValueError("too short")
        return x * 2


def make_nested() -> tuple[nn.Module, dict[str, object]]:
    return Nested(), {"x": torch.ones(1, 4), "extra": {"b": torch.ones(1, 4)}, "scale": 2.0}


def make_number() -> int:
    return 3


def make_broken() -> nn.Module:
    raise RuntimeError("no weights")


def make_sized(width: int) -> nn.Module:
    return nn.Linear(width, width)


linear = nn.Linear(4, 2)
