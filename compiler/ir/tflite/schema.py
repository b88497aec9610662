"""The numbers of TFLite's schema: operators, element types, and the fields of operators' options.

Facts of `schema.fbs`, version 3. https://github.com/tensorflow/tensorflow/blob/master/tensorflow/compiler/mlir/lite/schema/schema.fbs
"""

MAGIC = b"TFL3"
VERSION = 3

_NAMES = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
    EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
    LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1
    RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM
    CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
    SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
    BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM
    CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT
    SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT
    SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND
    LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE
    RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL
    REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE
    MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5
    SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM
    CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND
    HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE
    ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL
    GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX
    UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT
"""
OPERATORS = tuple(_NAMES.split())
"""By number. Those behind it are StableHLO's, which no interpreter of TFLite runs by itself."""
CUSTOM = OPERATORS.index("CUSTOM")

DTYPES = {
    0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16",
    9: "int8", 10: "float64", 12: "uint64", 13: "resource", 15: "uint32", 16: "uint16", 17: "int4",
}  # fmt: skip
"""Element types by number; strings, complex numbers, variants and narrower types are refused."""
TYPE_NAMES = {
    5: "string", 8: "complex64", 11: "complex128", 14: "variant", 18: "bfloat16", 19: "int2",
    20: "uint4", 21: "float8_e4m3fn", 22: "float8_e5m2",
}  # fmt: skip

_CONV = "padding:0:int8 stride_w:1:int32 stride_h:2:int32"
_REDUCED = "keep_dims:0:bool"
_FUSED = "activation:0:int8"
_BOX = f"{_CONV} filter_width:3:int32 filter_height:4:int32 activation:5:int8"
_ALIGNED = "align_corners:{}:bool half_pixel_centers:{}:bool"

_TABLES = {
    "CONV_2D": f"{_CONV} activation:3:int8 dilation_w:4:int32:1 dilation_h:5:int32:1",
    "DEPTHWISE_CONV_2D": f"{_CONV} depth_multiplier:3:int32 activation:4:int8 "
    "dilation_w:5:int32:1 dilation_h:6:int32:1",
    "TRANSPOSE_CONV": f"{_CONV} activation:3:int8",
    "AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D": _BOX,
    "FULLY_CONNECTED": "activation:0:int8 weights_format:1:int8 keep_num_dims:2:bool "
    "asymmetric:3:bool",
    "SVDF": "rank:0:int32 activation:1:int8 asymmetric:2:bool",
    "ADD SUB MUL DIV L2_NORMALIZATION": _FUSED,
    "CONCATENATION": "axis:0:int32 activation:1:int8",
    "SOFTMAX": "beta:0:float32",
    "RESIZE_BILINEAR": _ALIGNED.format(2, 3),
    "RESIZE_NEAREST_NEIGHBOR": _ALIGNED.format(0, 1),
    "SPACE_TO_DEPTH DEPTH_TO_SPACE": "block_size:0:int32",
    "GATHER": "axis:0:int32 batch_dims:1:int32",
    "MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL": _REDUCED,
    "SPLIT SPLIT_V": "count:0:int32",
    "STRIDED_SLICE": "begin_mask:0:int32 end_mask:1:int32 ellipsis_mask:2:int32 "
    "new_axis_mask:3:int32 shrink_axis_mask:4:int32 offset:5:bool",
    "PACK": "count:0:int32 axis:1:int32",
    "UNPACK": "count:0:int32 axis:1:int32",
    "ONE_HOT": "axis:0:int32",
    "LEAKY_RELU": "alpha:0:float32",
    "MIRROR_PAD": "mode:0:int8",
    "REVERSE_SEQUENCE": "seq_dim:0:int32 batch_dim:1:int32",
    "CALL_ONCE": "subgraph:0:int32",
    "BATCH_MATMUL": "adj_x:0:bool adj_y:1:bool asymmetric:2:bool",
    "CUMSUM": "exclusive:0:bool reverse:1:bool",
    "GELU": "approximate:0:bool",
}

OPTIONS: dict[str, dict[str, tuple[int, str, int]]] = {
    operator: {
        name: (int(field), dtype, int(default[0]) if default else 0)
        for name, field, dtype, *default in (entry.split(":") for entry in fields.split())
    }
    for operators, fields in _TABLES.items()
    for operator in operators.split()
}
"""By operator: a field's number, type and default by name."""
