/* Runs a compiled model once, off any Python: DRIVER LIBRARY WEIGHTS INPUTS OUTPUTS, the last three
 * files of tensors.
 *
 * A file of tensors is an int64 count, then for each tensor int64 code, bits, rank and extents, and
 * the values in C order. With RELAXD_OPEN, the function that a static model's header gives, LIBRARY
 * is ignored. With RELAXD_THREADS so many threads compute, those that the bundle brings; else the
 * runtime's own. With RELAXD_DEVICE, DLPack's number of a kind, kernels run on its first device, to
 * which tensors are copied; RELAXD_FAILURE names the function that returns what failed there. */
#ifdef RELAXD_THREADS
#include <dlfcn.h>
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

enum { ALIGNMENT = 64, CPU = 1, POOLED = 2 };
#ifdef RELAXD_DEVICE
enum { DEVICE = RELAXD_DEVICE };
#else
enum { DEVICE = CPU };
#endif

static void stop(const char *what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static void check(int status, const char *what) {
  TVMFFIObjectHandle raised = NULL;
  if (status == 0) return;
  TVMFFIErrorMoveFromRaised(&raised);
  if (raised != NULL) {
    TVMFFIErrorCell *error = (TVMFFIErrorCell *)((char *)raised + sizeof(TVMFFIObject));
    fprintf(stderr, "%.*s: %.*s\n", (int)error->kind.size, error->kind.data,
            (int)error->message.size, error->message.data);
  }
  stop(what);
}

static TVMFFIAny of_object(TVMFFIObjectHandle handle, int32_t type) {
  TVMFFIAny value;
  memset(&value, 0, sizeof value);
  value.type_index = type;
  value.v_obj = (TVMFFIObject *)handle;
  return value;
}

static TVMFFIAny of_int(int64_t number) {
  TVMFFIAny value;
  memset(&value, 0, sizeof value);
  value.type_index = kTVMFFIInt;
  value.v_int64 = number;
  return value;
}

static TVMFFIAny of_text(const char *text) {
  TVMFFIAny value;
  memset(&value, 0, sizeof value);
  value.type_index = kTVMFFIRawStr;
  value.v_c_str = text;
  return value;
}

static TVMFFIAny call(TVMFFIObjectHandle function, TVMFFIAny *arguments, int32_t count,
                      const char *what) {
  TVMFFIAny result;
  memset(&result, 0, sizeof result);
  check(TVMFFIFunctionCall(function, arguments, count, &result), what);
  return result;
}

static TVMFFIObjectHandle global(const char *name) {
  TVMFFIByteArray text = {name, strlen(name)};
  TVMFFIObjectHandle function = NULL;
  check(TVMFFIFunctionGetGlobal(&text, &function), name);
  if (function == NULL) stop(name);
  return function;
}

#ifndef RELAXD_OPEN
static TVMFFIObjectHandle member(TVMFFIAny module, const char *name) {
  TVMFFIAny arguments[3] = {module, of_text(name), of_int(0)};
  arguments[2].type_index = kTVMFFIBool;
  TVMFFIAny found = call(global("ffi.ModuleGetFunction"), arguments, 3, name);
  if (found.type_index != kTVMFFIFunction) stop(name);
  return found.v_obj;
}

static int open_library(const char *path, TVMFFIObjectHandle *entry) {
  TVMFFIAny file = of_text(path), setup[6] = {of_int(DEVICE), of_int(0), of_int(POOLED),
                                              of_int(CPU),    of_int(0), of_int(POOLED)};
  const int32_t devices = DEVICE == CPU ? 1 : 2;
  TVMFFIAny library = call(global("ffi.ModuleLoadFromFile"), &file, 1, "load");
  TVMFFIAny machine = call(member(library, "vm_load_executable"), NULL, 0, "vm_load_executable");
  call(member(machine, "vm_initialization"), setup, 3 * devices, "vm_initialization");
  *entry = member(machine, "main");
  return 0;
}
#endif

#ifdef RELAXD_THREADS
int relaxd_launch(void *tasks, void *data, int32_t count);
void *relaxd_team(int32_t helpers, int64_t patience, int64_t *ids);
void relaxd_lead(void *team);

static void lead_threads(const char *path) {
  int64_t ids[RELAXD_THREADS];
  void *library = dlopen(path, RTLD_NOW), *team = relaxd_team(RELAXD_THREADS - 1, 50000, ids);
  if (library == NULL || team == NULL) stop(library == NULL ? dlerror() : "no threads");
  void **launch = (void **)dlsym(library, "__TVMBackendParallelLaunch");
  /* A library without kernels has no such place. */
  if (launch != NULL) *launch = (void *)relaxd_launch;
  relaxd_lead(team);
}
#endif

static int64_t read_number(FILE *file) {
  int64_t number;
  if (fread(&number, sizeof number, 1, file) != 1) stop("a file of tensors ends early");
  return number;
}

static size_t bytes_of(const DLTensor *tensor) {
  size_t size = ((size_t)tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) size *= (size_t)tensor->shape[axis];
  return size;
}

static void keep(DLManagedTensor *tensor) { (void)tensor; }

static TVMFFIAny read_tensor(FILE *file) {
  DLManagedTensor *managed = calloc(1, sizeof *managed);
  DLTensor *tensor = &managed->dl_tensor;
  TVMFFIObjectHandle handle = NULL;
  tensor->device.device_type = kDLCPU;
  tensor->dtype.code = (uint8_t)read_number(file);
  tensor->dtype.bits = (uint8_t)read_number(file);
  tensor->dtype.lanes = 1;
  tensor->ndim = (int32_t)read_number(file);
  tensor->shape = calloc((size_t)tensor->ndim + 1, sizeof(int64_t));
  tensor->strides = calloc((size_t)tensor->ndim + 1, sizeof(int64_t));
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) tensor->shape[axis] = read_number(file);
  int64_t stride = 1;
  for (int32_t axis = tensor->ndim - 1; axis >= 0; --axis) {
    tensor->strides[axis] = stride;
    stride *= tensor->shape[axis];
  }
  size_t size = bytes_of(tensor);
  tensor->data = aligned_alloc(ALIGNMENT, size / ALIGNMENT * ALIGNMENT + ALIGNMENT);
  if (tensor->data == NULL) stop("out of memory");
  if (size != 0 && fread(tensor->data, size, 1, file) != 1) stop("a file of tensors ends early");
  managed->deleter = keep;
  check(TVMFFITensorFromDLPack(managed, ALIGNMENT, 1, &handle), "tensor");
  return of_object(handle, kTVMFFITensor);
}

#ifdef RELAXD_DEVICE
static TVMFFIAny of_device(int32_t kind) {
  TVMFFIAny value;
  memset(&value, 0, sizeof value);
  value.type_index = kTVMFFIDevice;
  value.v_device.device_type = (DLDeviceType)kind;
  return value;
}

/* The device's interface returns no failures: it keeps the first until somebody asks. */
static void stop_on_failure(void) {
  TVMFFIAny text = call(global(RELAXD_FAILURE), NULL, 0, "failure");
  TVMFFIByteArray bytes = {text.v_bytes, text.small_str_len};
  if (text.type_index == kTVMFFIStr)
    memcpy(&bytes, (char *)text.v_obj + sizeof(TVMFFIObject), sizeof bytes);
  if (bytes.size == 0) return;
  fprintf(stderr, "%.*s\n", (int)bytes.size, bytes.data);
  stop("the device failed");
}

static TVMFFIAny copy_to(TVMFFIAny value, int32_t kind) {
  const DLTensor *tensor = (const DLTensor *)((char *)value.v_obj + sizeof(TVMFFIObject));
  TVMFFIAny *extents = calloc((size_t)tensor->ndim + 1, sizeof *extents), arguments[4];
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) extents[axis] = of_int(tensor->shape[axis]);
  memset(arguments, 0, sizeof arguments);
  arguments[0] = call(global("ffi.Shape"), extents, tensor->ndim, "shape");
  arguments[1].type_index = kTVMFFIDataType;
  arguments[1].v_dtype = tensor->dtype;
  arguments[2] = of_device(kind);
  arguments[3].type_index = kTVMFFINone;
  TVMFFIAny copy = call(global("runtime.TVMTensorAllocWithScope"), arguments, 4, "allocate");
  TVMFFIAny pair[2] = {value, copy};
  free(extents);
  stop_on_failure();
  call(global("runtime.TVMTensorCopyFromTo"), pair, 2, "copy");
  TVMFFIAny stream[2] = {of_device(DEVICE), of_int(0)};
  call(global("runtime.Device_StreamSync"), stream, 2, "wait");
  stop_on_failure();
  return copy;
}
#else
static TVMFFIAny copy_to(TVMFFIAny value, int32_t kind) {
  (void)kind;
  return value;
}
#endif

static void write_number(FILE *file, int64_t number) {
  if (fwrite(&number, sizeof number, 1, file) != 1) stop("cannot write the outputs");
}

static void write_tensor(FILE *file, TVMFFIAny value) {
  if (value.type_index != kTVMFFITensor) stop("an output is no tensor");
  value = copy_to(value, CPU);
  const DLTensor *tensor = (const DLTensor *)((char *)value.v_obj + sizeof(TVMFFIObject));
  size_t size = bytes_of(tensor);
  write_number(file, tensor->dtype.code);
  write_number(file, tensor->dtype.bits);
  write_number(file, tensor->ndim);
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) write_number(file, tensor->shape[axis]);
  const char *data = (const char *)tensor->data + tensor->byte_offset;
  if (size != 0 && fwrite(data, size, 1, file) != 1) stop("cannot write the outputs");
}

static FILE *opened(const char *path, const char *mode) {
  FILE *file = fopen(path, mode);
  if (file == NULL) stop(path);
  return file;
}

static void write_result(FILE *file, TVMFFIAny result) {
  if (result.type_index == kTVMFFITensor) {
    write_number(file, 1);
    write_tensor(file, result);
    return;
  }
  int64_t count = call(global("ffi.ArraySize"), &result, 1, "outputs").v_int64;
  write_number(file, count);
  for (int64_t index = 0; index < count; ++index) {
    TVMFFIAny arguments[2] = {result, of_int(index)};
    write_tensor(file, call(global("ffi.ArrayGetItem"), arguments, 2, "output"));
  }
}

int main(int count, char **arguments) {
  TVMFFIObjectHandle entry = NULL;
  if (count != 5) stop("usage: DRIVER LIBRARY WEIGHTS INPUTS OUTPUTS");
#ifdef RELAXD_OPEN
  check(RELAXD_OPEN(&entry), "open");
#else
  check(open_library(arguments[1], &entry), "open");
#endif
#ifdef RELAXD_THREADS
  lead_threads(arguments[1]);
#endif
  FILE *weights = opened(arguments[2], "rb"), *inputs = opened(arguments[3], "rb");
  int64_t given = read_number(inputs), bound = read_number(weights);
  TVMFFIAny *values = calloc((size_t)(given + bound) + 1, sizeof *values);
  for (int64_t index = 0; index < given; ++index)
    values[index] = copy_to(read_tensor(inputs), DEVICE);
  for (int64_t index = 0; index < bound; ++index)
    values[given + index] = copy_to(read_tensor(weights), DEVICE);
  TVMFFIAny result = call(entry, values, (int32_t)(given + bound), "main");
  FILE *outputs = opened(arguments[4], "wb");
  write_result(outputs, result);
  if (fclose(outputs) != 0) stop("cannot write the outputs");
  /* The thread pool of the runtime must not be torn down under its workers. */
  fflush(NULL);
  _Exit(0);
}
