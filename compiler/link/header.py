"""The C header of a static archive: how a program opens the model in it, and what that takes and
gives.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

from compiler.errors import LinkError
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.dims.names import clean_comment
from relaxd.contract.dims.tensors import TensorSpec, storage_of

FILENAME = "model.h"

_TEMPLATE = """\
/* {name}, compiled by relaxd for {target}.
 *
 * Link model.a whole (-Wl,--whole-archive, or -force_load for Mach-O): its constructors register
 * the model under its prefix, so that several models link into one program. Link TVM's runtime
 * {runtime} as well, and C++'s library.
 *
 * {guard}_open gives the function `{entry}`: call it with TVMFFIFunctionCall on {inputs}
 * inputs, then {weights} weights, all {tensors}. It returns {result}.
 *
{signature} */
#ifndef {guard}_H
#define {guard}_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <tvm/ffi/c_api.h>

#define {guard}_PREFIX "{prefix}"
#define {guard}_INPUTS {inputs}
#define {guard}_OUTPUTS {outputs}
#define {guard}_WEIGHTS {weights}

/* Where each weight lies in {weights_file}: offset in bytes, DLPack's type code and bits, rank,
 * extents. */
typedef struct {{
  int64_t offset;
  int32_t code, bits, rank;
  int64_t shape[{rank}];
}} {guard}_weight;

static const {guard}_weight {guard}_weights[{rows}] = {{
{table}
}};

static inline int {guard}_call(const char *global, TVMFFIAny *arguments, int32_t count,
    TVMFFIAny *result) {{
  TVMFFIByteArray name;
  TVMFFIObjectHandle function = NULL;
  int status;
  name.data = global;
  name.size = strlen(global);
  status = TVMFFIFunctionGetGlobal(&name, &function);
  if (status != 0 || function == NULL) return status != 0 ? status : -1;
  memset(result, 0, sizeof *result);
  status = TVMFFIFunctionCall(function, arguments, count, result);
  TVMFFIObjectDecRef(function);
  return status;
}}

static inline int {guard}_member(TVMFFIAny module, const char *name, TVMFFIAny *function) {{
  TVMFFIAny arguments[3];
  memset(arguments, 0, sizeof arguments);
  arguments[0] = module;
  arguments[1].type_index = kTVMFFIRawStr;
  arguments[1].v_c_str = name;
  arguments[2].type_index = kTVMFFIBool;
  if ({guard}_call("ffi.ModuleGetFunction", arguments, 3, function) != 0) return -1;
  return function->type_index == kTVMFFIFunction ? 0 : -1;
}}

/* Opens the model; 0 and its function in *entry, or what the function interface returned. The
 * caller owns *entry. */
static inline int {guard}_open(TVMFFIObjectHandle *entry) {{
  TVMFFIAny prefix, library, loader, machine, initialise, setup[{words}], done, function;
  /* A kind, a number and the pooled allocator for each device. */
  static const int64_t devices[{words}] = {{{devices}}};
  int word;
  memset(&prefix, 0, sizeof prefix);
  memset(setup, 0, sizeof setup);
  memset(&machine, 0, sizeof machine);
  memset(&done, 0, sizeof done);
  prefix.type_index = kTVMFFIRawStr;
  prefix.v_c_str = {guard}_PREFIX;
  if ({guard}_call("ffi.SystemLib", &prefix, 1, &library) != 0) return -1;
  if ({guard}_member(library, "vm_load_executable", &loader) != 0) return -1;
  if (TVMFFIFunctionCall(loader.v_obj, NULL, 0, &machine) != 0) return -1;
  if ({guard}_member(machine, "vm_initialization", &initialise) != 0) return -1;
  for (word = 0; word < {words}; ++word) {{
    setup[word].type_index = kTVMFFIInt;
    setup[word].v_int64 = devices[word];
  }}
  if (TVMFFIFunctionCall(initialise.v_obj, setup, {words}, &done) != 0) return -1;
  if ({guard}_member(machine, "{entry}", &function) != 0) return -1;
  *entry = function.v_obj;
  return 0;
}}

#endif
"""
_CODES = {
    "int": "kDLInt",
    "uint": "kDLUInt",
    "float": "kDLFloat",
    "bfloat": "kDLBfloat",
    "bool": "kDLBool",
}


_CPU = "kDLCPU"
_DEVICES = {
    "cpu": _CPU,
    "cuda": "kDLCUDA",
    "metal": "kDLMetal",
    "opencl": "kDLOpenCL",
    "rocm": "kDLROCM",
}
"""DLPack's names of the devices that archives are for, as a load contract names them."""


def prefix_of(name: str, digest: str) -> str:
    """The system library's prefix of a model: its name as a C identifier, and enough of its digest
    to be its own.
    """
    identifier = re.sub(r"\W", "_", name, flags=re.ASCII)[:40] or "model"
    return f"relaxd_{identifier}_{hashlib.sha256(digest.encode()).hexdigest()[:10]}_"


def write(bundle: Path, manifest: Manifest, prefix: str) -> None:
    """Write the header for the archive in the bundle."""
    shapes = [weight.shape for weight in manifest.weights] or [()]
    lines = [f" *   in   {_line(spec)}\n" for spec in manifest.inputs] + [
        f" *   out  {_line(spec)}\n" for spec in manifest.outputs
    ]
    dims = [
        f" *   dim  {clean_comment(dim.name)}: {clean_comment(dim.describe())}\n"
        for dim in manifest.dims
    ]
    text = _TEMPLATE.format(
        name=clean_comment(manifest.name),
        target=clean_comment(manifest.target["name"]),
        guard=prefix.rstrip("_"),
        prefix=prefix,
        entry=manifest.entry,
        runtime=manifest.load.runtime.get("apache-tvm", ""),
        inputs=len(manifest.inputs),
        outputs=len(manifest.outputs),
        weights=len(manifest.weights),
        weights_file=manifest.weights_file,
        **_devices_of(_DEVICES[manifest.load.device]),
        result="a tensor" if len(manifest.outputs) == 1 else "an ffi.Array of tensors",
        signature="".join(lines + dims),
        rank=max(1, max(map(len, shapes))),
        rows=max(1, len(manifest.weights)),
        table=",\n".join(
            _row(weight.offset, weight.dtype, weight.shape) for weight in manifest.weights
        )
        or "  {0}",
    )
    (bundle / FILENAME).write_text(text, encoding="utf-8")


def _devices_of(device: str) -> dict[str, Any]:
    """The parts of the text about the device that runs the kernels; the processor serves it."""
    kinds = tuple(dict.fromkeys((device, _CPU)))
    on_device = f"tensors of the device {device}, 0"
    return {
        "tensors": "CPU tensors aligned to 64 bytes" if device == _CPU else on_device,
        "words": 3 * len(kinds),
        "devices": ", ".join(f"{kind}, 0, 2" for kind in kinds),
    }


def opener_of(header: Path) -> str:
    """The name of the function that opens the model; raises LinkError for a header that
    has none.
    """
    match = re.search(r"static inline int (\w+_open)\(", header.read_text(encoding="utf-8"))
    if match is None:
        raise LinkError(
            f"{header.name} gives no function that opens the model", reason="bad_header"
        )
    return match[1]


def _line(spec: TensorSpec) -> str:
    stored = storage_of(spec.dtype)
    bytes_ = f", one element a byte as {stored}" if stored != spec.dtype else ""
    return f"{clean_comment(spec.name)}: {clean_comment(spec.text)}{bytes_}"


def _row(offset: int, dtype: str, shape: tuple[int, ...]) -> str:
    kind, bits = re.fullmatch(r"([a-z]+)(\d*)", dtype).groups()  # type: ignore[union-attr]
    extents = ", ".join(map(str, shape)) or "0"
    return f"  {{{offset}, {_CODES[kind]}, {bits or 8}, {len(shape)}, {{{extents}}}}}"
