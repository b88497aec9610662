"""ONNX's element types that we carry, with their names."""

import onnx

DTYPES: dict[int, str] = {
    getattr(onnx.TensorProto, code): name
    for code, name in {
        "BOOL": "bool", "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
        "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
        "FLOAT16": "float16", "BFLOAT16": "bfloat16", "FLOAT": "float32", "DOUBLE": "float64",
    }.items()
}  # fmt: skip
"""Those that operators compute with."""

CARRIED: dict[int, str] = DTYPES | {
    getattr(onnx.TensorProto, code): name
    for code, name in {
        "FLOAT8E4M3FN": "float8_e4m3fn", "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
        "FLOAT8E5M2": "float8_e5m2", "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
        "FLOAT8E8M0": "float8_e8m0fnu", "FLOAT4E2M1": "float4_e2m1fn",
        "INT4": "int4", "UINT4": "uint4", "INT2": "int2", "UINT2": "uint2",
    }.items()
}  # fmt: skip
"""Those and the narrow ones, which are moved and converted (`compiler.ir.onnx.small_types`)."""


def name_of(code: int) -> str:
    """ONNX's name of an element type, for messages; a number that names none is given back."""
    known = code in onnx.TensorProto.DataType.values()
    return str(onnx.TensorProto.DataType.Name(code)) if known else str(code)
