"""Distributions of inputs, and how one is chosen."""

from pathlib import Path

import numpy as np
import pytest

from compiler.ir.shapes.index_bounds import Limit
from compiler.verify.choosing import best, spreads_of
from compiler.verify.inputs import array_file
from compiler.verify.inputs.distributions import Distribution, Image, candidates, is_audio, sample
from compiler.verify.inputs.drawing import draw
from compiler.verify.inputs.inputs import Signature, prepare_each
from compiler.verify.inputs.points import Point
from relaxd.contract.dims.dims import Dim
from tests.support import declared

PICTURES = (Distribution.PAGES, Distribution.SMOOTH, Distribution.BRIGHT_PAGES)
POINT = Point("p", {"n": 2, "h": 96, "w": 131, "t": 4000})


def draw_input(text: str, wanted: Distribution, point: Point = POINT, seed: int = 0) -> np.ndarray:
    spec = declared.spec(text)
    return draw(point, [spec], {}, seed, wanted)[spec.name]


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("x=float32[n,3,h,w]", Image(1, 2)),
        ("x=float32[n,h,w,1]", Image(3, 1)),
        ("x=float16[3,h,w]", Image(0, 1)),
        ("x=uint8[n,h,w,3]", Image(3, 1)),
        ("x=float32[n,16,h,w]", None),
        ("x=int64[n,3,h,w]", None),
        ("x=float32[n,w]", None),
    ],
)
def test_images_are_known_by_their_channels(text: str, image: Image | None) -> None:
    assert Image.of(declared.spec(text)) == image


@pytest.mark.parametrize(
    ("text", "audio"),
    [
        ("waveform=float32[n,t]", True),
        ("x=float32[n,1,t]", False),
        ("x=float32[n,512]", True),
        ("x=float32[512]", False),
        ("audio_length=int64[n]", False),
        ("x=float32[n,80,t]", False),
    ],
)
def test_sounds_are_known_by_name_or_by_many_samples(text: str, audio: bool) -> None:
    assert is_audio(declared.spec(text)) is audio


def test_distributions_fit_the_inputs() -> None:
    image, sound = declared.spec("x=float32[n,3,h,w]"), declared.spec("audio=float32[n,t]")
    assert candidates([declared.spec("x=float32[n,8]")], []) == [Distribution.NOISE]
    assert candidates([image], []) == [Distribution.NOISE, *PICTURES]
    assert candidates([sound], []) == [
        Distribution.NOISE,
        Distribution.TONES,
        Distribution.QUIET,
    ]
    assert candidates([declared.spec("ids=int64[n]")], [30521])[1:] == [Distribution.TEXT]
    assert candidates([declared.spec("ids=int64[n]")], [9])[1:] == []


@pytest.mark.parametrize("layout", ["n,3,h,w", "n,h,w,3", "n,1,h,w"])
def test_pages_are_light_with_dark_strokes(layout: str) -> None:
    page = draw_input(f"x=float32[{layout}]", Distribution.PAGES)
    assert (page.dtype, page.size) == (np.float32, 2 * 96 * 131 * (1 if "1" in layout else 3))
    light, dark = (page > 0.5).mean(), (page < -0.5).mean()
    assert light > 0.5
    assert 0.02 < dark < 0.4
    bright = draw_input(f"x=float32[{layout}]", Distribution.BRIGHT_PAGES)
    assert (bright.min() >= 0, bright.max() > 200) == (True, True)


def test_bytes_are_bright_pages() -> None:
    page = draw_input("x=uint8[n,h,w,3]", Distribution.PAGES)
    assert (page.dtype, page.min() < 60, page.max() > 200) == (np.uint8, True, True)


def test_smooth_pictures_hardly_change_from_pixel_to_pixel() -> None:
    picture = draw_input("x=float32[n,3,h,w]", Distribution.SMOOTH)
    assert np.abs(np.diff(picture, axis=-1)).max() < 0.8
    assert picture.std() > 0.3


def test_tones_are_periodic() -> None:
    sound = draw_input("audio=float32[n,t]", Distribution.TONES)
    assert 0.05 < sound.std() < 0.6
    power = np.abs(np.fft.rfft(sound[0] * np.hanning(4000))) ** 2
    assert np.sort(power)[-200:].sum() > 0.9 * power.sum()


def test_text_is_of_few_frequent_tokens_between_special_ones() -> None:
    spec = declared.spec("ids=int64[n,t]")
    ids = draw(POINT, [spec], {"ids": [Limit(0, 29999)]}, 0, Distribution.TEXT)["ids"]
    assert (set(ids[:, 0]), set(ids[:, -1])) == ({1}, {2})
    assert (ids.min() >= 0, ids.max() < 30000, np.median(ids) < 1000) == (True, True, True)


@pytest.mark.parametrize("wanted", Distribution)
@pytest.mark.parametrize("size", [1, 2, 5, 64, 65])
def test_every_size_is_drawn_and_a_seed_decides(wanted: Distribution, size: int) -> None:
    point = Point("p", {"n": 1, "h": size, "w": size, "t": size})
    for text in ("x=float32[n,3,h,w]", "x=uint8[h,w,1]", "speech=float32[n,1,t]"):
        first, again, unlike = (draw_input(text, wanted, point, seed) for seed in (0, 0, 1))
        assert np.isfinite(first.astype(np.float64)).all()
        np.testing.assert_array_equal(first, again)
        assert size < 5 or (first != unlike).any()


def test_what_is_empty_or_no_picture_is_noise() -> None:
    random = np.random.default_rng(0)
    image = declared.spec("x=float32[n,3,h,w]")
    assert sample(image, (1, 3, 0, 4), Distribution.PAGES, random) is None
    assert sample(image, (1, 3, 4, 4), Distribution.TONES, random) is None


def test_rows_that_are_all_alike_say_nothing() -> None:
    row = np.random.default_rng(0).random(50)
    assert spreads_of({"y": np.tile(row, (9, 1))})[0] < 1e-9
    assert spreads_of({"y": row[None]})[0] == pytest.approx(row.std())
    spreads = spreads_of({"n": np.full((2, 2), np.nan), "e": np.zeros((0, 4)), "i": np.arange(9)})
    assert spreads == [0.0, 0.0, 0.05]


def test_noise_is_kept_unless_something_says_more() -> None:
    noise, pages, quiet = Distribution.NOISE, Distribution.PAGES, Distribution.QUIET
    assert best({noise: [1e-6], pages: [0.3]}).distribution is pages
    assert best({noise: [0.2], pages: [9.0]}).distribution is noise
    assert best({noise: [0.01], pages: [0.011]}).distribution is noise
    assert best({noise: [0.01, 0.0], quiet: [0.02, 0.04]}).distribution is quiet
    assert best({}).distribution is noise
    bright = Distribution.BRIGHT_PAGES
    assert best({noise: [1e-3], pages: [2e-3], bright: [6e-3]}).distribution is pages
    assert best({noise: [1e-4], pages: [1e-4], bright: [0.3]}).distribution is bright
    assert best({noise: [1e-6], pages: [0.3]}).to_json() == {
        "distribution": "pages",
        "spread": {"noise": 1e-06, "pages": 0.3},
    }


def test_masks_lengths_and_positions_are_plausible() -> None:
    inputs = [
        declared.spec("ids=int64[n,t]"),
        declared.spec("attention_mask=float32[n,t]"),
        declared.spec("position_ids=int64[n,t]"),
        declared.spec("audio_len=int64[n]"),
    ]
    values = draw(Point("p", {"n": 4, "t": 30}), inputs, {}, 0)
    mask = values["attention_mask"]
    assert set(np.unique(mask)) == {0, 1}
    assert mask[0].all()
    assert (np.diff(mask, axis=1) <= 0).all()
    assert values["position_ids"][3].tolist() == list(range(30))
    assert values["audio_len"][0] == 30
    assert values["audio_len"].min() >= 1


def test_trials_of_tokens_are_cheap_and_those_of_pictures_large_enough(tmp_path: Path) -> None:
    dims = (Dim("n", 1, 8), Dim("t", 1, 512))
    ids = Signature((declared.spec("ids=int64[n,t]"),), (), dims, {"ids": [Limit(0, 29999)]})
    both = [Distribution.NOISE, Distribution.TEXT]
    trials = prepare_each(ids, both, 0, tmp_path, 64)
    assert [trial.point.label for trial in trials] == ["noise", "text"]
    assert 64 <= trials[0].point.dims["n"] * trials[0].point.dims["t"] < 512
    image = Signature((declared.spec("x=float32[n,3,t,t]"),), (), dims, {})
    (trial,) = prepare_each(image, [Distribution.PAGES], 0, tmp_path, 3 * 160 * 160)
    assert array_file.read(trial.inputs)["x"].size >= 3 * 160 * 160
