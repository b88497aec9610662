"""A build's report with all that one can have, as the page shows it."""

from typing import Any

KERNELS = (
    ("fused_panel_matmul_relu", "matmul", "8x32", 0.38, ("/encoder/dense/MatMul", "/encoder/Relu")),
    ("attention", "attention", "6 queries x 32 keys", 0.22, ("/encoder/attention/MatMul",)),
    ("winograd_conv", "winograd", "4x4 results", 0.14, ("/stem/Conv",)),
    ("softmax", "generic", "", 0.1, ("/encoder/Softmax",)),
    ("fused_panel_matmul_add", "matmul_dynamic", "8x32", 0.08, ("/head/MatMul", "/head/Add")),
    ("transpose", "transpose", "", 0.05, ("/encoder/Transpose",)),
    ("max_pool", "pooling", "", 0.03, ("/stem/MaxPool",)),
)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def report(slower: float = 1.0) -> dict[str, Any]:
    """Every time multiplied by `slower`."""
    points = [_point(1, seq, slower) for seq in SIZES] + [_point(8, seq, slower) for seq in SIZES]
    return {
        "schema": "relaxd.report/v1",
        "name": "encoder.onnx",
        "target": {
            "name": "x86-64-v4",
            "arch": "x86_64",
            "os": "linux",
            "device": "cpu",
            "isa": ["avx2", "avx512f"],
            "status": "executed",
        },
        "inputs": [{"name": "ids", "dtype": "int64", "shape": ["batch", "seq"]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", "seq", "384"]}],
        "dims": [_dim("batch", 8, 8), _dim("seq", 512, 256)],
        "sizes": {"total": 95_000_000, "library": 900_000, "weights": 90_000_000, "files": {}},
        "memory": {"planned_bytes": 5_000_000, "unplanned_bytes": 12_000_000},
        "numerics": _numerics(),
        "kernels": [
            {"name": name, "family": family, "tile": tile, "nodes": list(nodes)}
            for name, family, tile, _, nodes in KERNELS
        ],
        "profiles": [_profile(points, slower)],
        "sentences": [
            "38 % of the time is in 6 calls of compute-bound matmul kernels, at 82 % of the peak "
            "compute rate.",
            "seq was tested up to 256 of 512: declare a smaller maximum, or give --samples of "
            "larger inputs.",
        ],
        "model": "sha256:" + "12" * 32,
        "action_key": "sha256:" + "34" * 32,
        "options": {"verify": True, "profile": True},
        "toolchain": {"tvm": "0.27.0.post1"},
        "sandbox": "full",
    }


def _dim(name: str, greatest: int, verified: int) -> dict[str, Any]:
    return {
        "name": name,
        "min": 1,
        "max": greatest,
        "multiple": 1,
        "opt": None,
        "verified_up_to": verified,
        "measured_up_to": greatest,
    }


def _point(batch: int, seq: int, slower: float) -> dict[str, Any]:
    label = {(1, 1): "min", (1, 128): "opt", (8, 512): "max"}.get((batch, seq), "grid")
    ms = 0.2 + 0.03 * batch * seq
    reference = {**_timing(2 * ms), "engine": "onnxruntime 1.31.1", "threads": 2}
    dims = {"batch": batch, "seq": seq}
    return {**_timing(ms * slower), "label": label, "dims": dims, "reference": reference}


def _timing(ms: float) -> dict[str, Any]:
    return {
        "median_ms": ms,
        "min_ms": ms * 0.9,
        "p25_ms": ms * 0.95,
        "p75_ms": ms * 1.1,
        "p95_ms": ms * 1.3,
        "runs": 50,
        "rounds": 3,
        "stable": True,
    }


def _profile(points: list[dict[str, Any]], slower: float) -> dict[str, Any]:
    total = next(point["median_ms"] for point in points if point["label"] == "opt")
    terms = [
        {"ms": 0.2 * slower, "dims": {}},
        {"ms": 0.03 * slower, "dims": {"batch": 1, "seq": 1}},
    ]
    return {
        "measured": True,
        "reason": None,
        "machine": {
            "processor": "AMD EPYC 9R14",
            "cores": 2,
            "threads": 2,
            "load_average": [0.4, 0.3, 0.2],
            "governor": "performance",
            "peak_gflops": 232.0,
            "peak_gb_s": 38.0,
        },
        "load_ms": 181.0,
        "peak_rss_bytes": 140_000_000,
        "points": points,
        "left_out": [],
        "operators": {
            "label": "opt",
            "dims": {"batch": 1, "seq": 128},
            "rows": [_row(kernel, total) for kernel in KERNELS],
            "timeline": [{"name": name, "start_us": 0.0, "us": 1.0} for name, *_ in KERNELS],
        },
        "cost": {
            "terms": terms,
            "points": len(points),
            "error_median": 0.02,
            "error_max": 0.08,
            "low": {"batch": 1, "seq": 1},
            "high": {"batch": 8, "seq": 512},
        },
    }


def _row(kernel: tuple[str, str, str, float, tuple[str, ...]], total: float) -> dict[str, Any]:
    name, family, tile, share, nodes = kernel
    return {
        "name": name,
        "calls": 6,
        "ms": share * total,
        "share": share,
        "flops": 2_621_440,
        "bytes": 34_816,
        "gflops": 190.0,
        "gb_s": 3.1,
        "percent_of_peak": 82.0,
        "bound": "compute",
        "family": family,
        "tile": tile,
        "nodes": list(nodes),
    }


def _numerics() -> dict[str, Any]:
    points = [
        {
            "label": "random",
            "dims": {"batch": batch, "seq": seq},
            "verdict": "passed",
            "max_abs": 1e-8 * 10**step,
            "max_rel": 1e-7 * 10**step,
            "of_tolerance": 1e-4 * 10**step,
        }
        for step, (batch, seq) in enumerate([(1, 1), (1, 128), (8, 256), (8, 512)])
    ]
    output = {
        "name": "y",
        "dtype": "float32",
        "verdict": "passed",
        "problem": None,
        "max_abs": 1e-5,
        "max_rel": 1e-4,
        "range": 3.2,
        "atol": 1e-4,
        "rtol": 1e-3,
        "worst": points[-1],
        "points": points,
    }
    return {
        "status": "executed",
        "verdict": "passed",
        "reason": None,
        "reference": "onnxruntime 1.31.1",
        "warnings": [],
        "outputs": [output],
        "left_out": [{"label": "max", "dims": {"seq": 512}, "reason": "beyond the time budget"}],
    }
