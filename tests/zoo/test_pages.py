from tests.zoo.case import feed_of
from tests.zoo.cases import CASES
from tests.zoo.judging import judge, unproven
from tests.zoo.measure import reference


def test_the_detector_of_text_sees_text_on_small_pages():
    """On noise it answers with zeros or 1e-6, beside which no difference says anything."""
    case = CASES["ppocr_det"]
    path = case.export()
    points = [point for point in case.points if point["h"] * point["w"] <= 416 * 96]
    feeds = [feed_of(case, path, point, case.points.index(point)) for point in points]
    for feed, point, answer in zip(feeds, points, reference(path, feeds), strict=True):
        assert feed["x"].shape == (point["n"], 3, point["h"], point["w"])
        assert unproven([judge(answer, answer)]) == []
    assert len(points) == 3
