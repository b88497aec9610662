"""The driver's C source, and the header of a library that needs no runtime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import tvm

from compiler.codegen.standalone.main import Main, main_function
from compiler.codegen.standalone.model import Driver, c_type
from compiler.passes.lower.functions.c_interface import Kernel, Task
from compiler.tir.c_text import element_bytes, quote
from relaxd.contract.dims.axis_forms import bound_dims
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec, storage_of

_FOLDER = Path(__file__).parent
_EMBEDDED = """static const _Alignas(64) uint8_t rd_weights[] = {
#embed "weights.bin"
};"""
_RESULTS = """\
#define RD_AT(k) ((void *)(c->own.arena + c->at[k]))

/* An output of so many bytes: where the caller wants it, or in memory of the host's. */
static RD_UNUSED int rd_result(P *c, void *const *results, int i, int64_t bytes) {
  c->out[i] = results != NULL && results[i] != NULL ? results[i] : rd_take(&c->own, bytes);
  return c->out[i] == NULL ? RELAXD_MEMORY : RELAXD_OK;
}

/* An output that lies elsewhere. */
static RD_UNUSED void rd_deliver(P *c, void *const *results, int i, void *from, size_t bytes) {
  c->out[i] = from;
  if (results == NULL || results[i] == NULL) return;
  c->out[i] = results[i];
  if (bytes != 0) memmove(results[i], from, bytes);
}"""

TEAM = ("team", "help")
"""What the driver of a module with threads defines beside the functions of any other."""
WATCH = ("watch",)
"""The same of a driver that reports the calls of its kernels."""
_TEAM_FUNCTIONS = """\
int @P@_team(int helpers, int waits) {
  if (helpers < 0 || helpers > RD_HELPERS) return RELAXD_USAGE;
  rd_helpers = helpers;
  rd_waits = waits;
  return RELAXD_OK;
}

void @P@_help(int number) { rd_help(&rd_team[number - 1]); }"""


@dataclass(frozen=True)
class Signature:
    """A library's own description; weights: bytes of the file of weights; embedded: whether the
    library holds them, and its caller gives none; written: the inputs that a run writes rows of.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: tuple[Dim, ...]
    weights: int
    embedded: bool = False
    written: frozenset[str] = frozenset()

    @property
    def bound(self) -> tuple[Dim, ...]:
        """The dims that bind takes."""
        return bound_dims(self.inputs, self.dims)


def driver_source(
    module: tvm.IRModule,
    kernels: Mapping[str, Kernel],
    signature: Signature,
    prefix: str,
    offsets: Sequence[int],
    messages: Mapping[str, str],
    *,
    symbols: str | None = None,
    heap: bool = True,
    nodes: Mapping[str, Sequence[str]] = MappingProxyType({}),
    team: bool = False,
    watch: bool = False,
) -> tuple[str, Mapping[str, bytes]]:
    """The whole source, which includes `model.h`, and by name the other files that it includes;
    raises CodegenError.

    symbols: begins those of the kernels, if not the prefix; heap, nodes: as in Driver; team:
    whether the driver has threads of its own, as it has in WebAssembly; watch: whether a context
    may report the calls of its kernels, whose names the library then holds.
    """
    driver = Driver(module, kernels, prefix, tuple(offsets), messages, heap, nodes)
    main = main_function(driver, signature.inputs, signature.dims)
    parts = [
        f'#include "model.h"\n#define P {prefix}\n#define RD_RANK {driver.rank}'
        + ("\n#define RD_THREADS" if any(k.tasks for k in kernels.values()) else "")
        + ("\n#define RD_WATCH" if watch else ""),
        (_FOLDER / "team.h").read_text() if team else "",
        (_FOLDER / "support.h").read_text(),
        "\n".join(driver.kernel_prototypes()),
        interface_table(signature, any(kernel.tasks for kernel in kernels.values())),
        "\n".join(driver.statics),
        _EMBEDDED if signature.embedded else "",
        context(main, signature, driver.slots, driver.growing),
        _RESULTS,
        *_launchers(driver),
        "\n".join(driver.prototypes.values()),
        *driver.functions,
        run_function(main),
        entry_points(main, signature, prefix),
        _TEAM_FUNCTIONS.replace("@P@", prefix) if team else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n", driver.files


def context(main: Main, signature: Signature, slots: int, growing: int, also: str = "") -> str:
    """The struct of a run's state: `slots` positions in memory, and buffers that grow; also:
    members of the caller's own.
    """
    shapes = "".join(f"  int64_t shape{i}[{max(rank, 1)}];\n" for i, rank in enumerate(main.ranks))
    return f"""struct P {{
  rd_context own;
  int64_t dims[{max(len(signature.bound), 1)}];
  int64_t at[{max(slots, 1)}];
  rd_growing growing[{max(growing, 1)}];
  void *out[{max(len(main.ranks), 1)}];
{also}{shapes}}};"""


def _launchers(driver: Driver) -> list[str]:
    """The functions that kernels call to run a loop over the host's threads."""
    tasks = [task for kernel in driver.kernels.values() for task in kernel.tasks]
    return [_launcher(task) for task in tasks]


def _launcher(task: Task) -> str:
    types = [c_type(kind) for kind in task.params]
    fields = "".join(f" {kind} v{i};" for i, kind in enumerate(types))
    parameters = "".join(f", {kind} v{i}" for i, kind in enumerate(types))
    values = "".join(f", v{i}" for i in range(len(types)))
    passed = "".join(f", job->v{i}" for i in range(len(types)))
    job = f"{task.symbol}_job"
    return f"""typedef struct {{ rd_shares shares; P *c;{fields} }} {job};
static int {task.symbol}_run(void *at, int index, int slot) {{
  {job} *job = at;
  int64_t step = 0, first, end;
  int status = RELAXD_OK;
  while (status == RELAXD_OK && rd_claim(&job->shares, index, &step, &first, &end))
    status = {task.symbol}(first, end, rd_scratch(&job->c->own, slot){passed});
  return status;
}}
int {task.launch}(void *context, int64_t total{parameters});
int {task.launch}(void *context, int64_t total{parameters}) {{
  rd_context *own = context;
  {job} job = {{{{total, rd_threads(own), {{0}}}}, context{values}}};
  if (job.shares.threads == 1) return {task.symbol}(0, total, rd_scratch(own, 0){values});
  return own->host.parallel(own->host.user, {task.symbol}_run, &job, job.shares.threads);
}}"""


def run_function(main: Main) -> str:
    """The function that computes `main`, as C."""
    body = "\n".join(main.run)
    return f"""static int rd_run(P *c, const void *const *inputs, void *const *results) {{
  int status RD_UNUSED = RELAXD_OK;
  (void)inputs;
{body}
  return RELAXD_OK;
}}"""


def interface_table(signature: Signature, parallel: bool) -> str:
    """The table that describes the model."""
    lines = []
    for kind, specs in (("input", signature.inputs), ("output", signature.outputs)):
        for i, spec in enumerate(specs):
            axes = ", ".join(quote(axis.text) for axis in spec.shape) or "NULL"
            lines.append(f"static const char *const {kind}{i}[] = {{{axes}}};")
        rows = ", ".join(_tensor(spec, f"{kind}{i}") for i, spec in enumerate(specs))
        lines.append(f"static const relaxd_tensor {kind}s[] = {{{rows or '{0}'}}};")
    rows = ", ".join(
        f"{{{quote(dim.name)}, {dim.min}, {'INT64_MAX' if dim.max is None else dim.max}, "
        f"{dim.multiple}}}"
        for dim in signature.bound
    )
    lines.append(f"static const relaxd_dim dims[] = {{{rows or '{0}'}}};")
    lines.append(
        f"static const relaxd_interface interface = {{{quote(signature.name)}, "
        f"{len(signature.inputs)}, {len(signature.outputs)}, {len(signature.bound)}, "
        f"{int(parallel)}, inputs, outputs, dims, "
        f"{0 if signature.embedded else signature.weights}}};"
    )
    return "\n".join(lines)


def _tensor(spec: TensorSpec, axes: str) -> str:
    kind = storage_of(spec.dtype)
    return (
        f"{{{quote(spec.name)}, {quote(kind)}, {element_bytes(kind)}, {len(spec.shape)}, {axes}}}"
    )


def entry_points(main: Main, signature: Signature, prefix: str) -> str:
    """The functions that a program calls, as C."""
    count = len(main.ranks)
    bind = "\n".join(main.bind)
    known = "".join(
        f"  c->shape{i}[{axis}] = {text};\n"
        for i, shape in enumerate(main.shapes)
        for axis, text in enumerate(shape)
    )
    open_outputs = "".join(
        f"  if (results != NULL && results[{i}] != NULL) return rd_fail(&c->own, RELAXD_USAGE, "
        f"{quote(f'only a run knows the extents of output {spec.name}: give NULL for it')});\n"
        for i, (spec, shape) in enumerate(zip(signature.outputs, main.shapes, strict=True))
        if "-1" in shape
    )
    shapes = "".join(f"  if (output == {i}) return c->shape{i};\n" for i in range(count))
    weights_argument = "rd_weights" if signature.embedded else "weights"
    weights = (
        '  if (weights == NULL) return rd_fail(&c->own, RELAXD_USAGE, "open needs the weights");\n'
        if signature.weights and not signature.embedded
        else "  (void)weights;\n"
    )
    return f"""size_t {prefix}_size(void) {{ return sizeof(P); }}

int {prefix}_open(P *c, const void *weights, const relaxd_host *host) {{
  rd_open(&c->own, sizeof(P), {weights_argument}, host);
{weights}  return RELAXD_OK;
}}

static int rd_bind(P *c) {{
  int64_t at = 0, each = 0;
{bind}
{known}  if (each > RD_MOST_BYTES / rd_threads(&c->own) || at > RD_MOST_BYTES)
    return rd_too_large(&c->own);
  c->own.tail = at;
  c->own.each = RD_ROUND(each);
  c->own.need = at + c->own.each * rd_threads(&c->own);
  return c->own.need > RD_MOST_BYTES ? rd_too_large(&c->own) : RELAXD_OK;
}}

int64_t {prefix}_bind(P *c, const int64_t *given) {{
  int status;
  c->own.bound = c->own.placed = 0;
  c->own.node = NULL;
  rd_release_all(&c->own);
  for (int i = 0; i < {len(signature.bound)}; ++i) {{
    if (rd_check_dim(&c->own, &dims[i], given[i])) return -RELAXD_DIM;
    c->dims[i] = given[i];
  }}
  if ((status = rd_bind(c))) return -status;
  c->own.bound = 1;
  return c->own.need;
}}

int {prefix}_arena(P *c, void *arena) {{
  if (!c->own.bound) return rd_fail(&c->own, RELAXD_USAGE, "bind comes before arena");
  if (arena == NULL && c->own.need != 0) return rd_fail(&c->own, RELAXD_USAGE, "the arena is NULL");
  c->own.arena = arena;
  c->own.scratch = (uint8_t *)arena + c->own.tail;
  c->own.placed = 1;
  return RELAXD_OK;
}}

int {prefix}_run(P *c, const void *const *inputs, void *const *results) {{
  if (!c->own.placed) return rd_fail(&c->own, RELAXD_USAGE, "bind and arena come before run");
{open_outputs}  c->own.node = NULL;
  rd_sweep(&c->own, NULL, NULL, 0);
  return rd_run(c, inputs, results);
}}

const int64_t *{prefix}_shape(const P *c, int output) {{
{shapes}  return NULL;
}}

const void *{prefix}_output(const P *c, int output) {{
  return output < 0 || output >= {count} ? NULL : c->out[output];
}}

const char *{prefix}_failure(const P *c) {{ return c->own.failure; }}

const relaxd_interface *{prefix}_interface(void) {{ return &interface; }}

void {prefix}_close(P *c) {{
  rd_release_all(&c->own);
  if (c->own.wide.data != NULL) c->own.host.release(c->own.host.user, c->own.wide.data);
  for (size_t i = 0; i < sizeof c->growing / sizeof *c->growing; ++i)
    if (c->growing[i].data != NULL) c->own.host.release(c->own.host.user, c->growing[i].data);
  rd_open(&c->own, sizeof(P), NULL, NULL);
}}

#if defined(RD_WATCH)
void {prefix}_watch(P *c, void (*watch)(void *, const char *, int), void *user) {{
  c->own.watch = watch;
  c->own.watcher = user;
  c->own.watched = watch != NULL;
}}
#endif

#if defined(RD_GROWS)
void *{prefix}_allocate(size_t bytes) {{ return rd_grows_allocate(NULL, bytes); }}
void {prefix}_release(void *at) {{ rd_grows_release(NULL, at); }}
#endif"""
