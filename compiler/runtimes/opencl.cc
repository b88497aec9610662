/* TVM's device interface and kernels on OpenCL, which TVM's wheels leave out: one device a process,
 * one queue in order.
 *
 * The driver is opened when a device is first asked for, so this needs neither OpenCL's headers nor
 * its library to be built. What TVM calls as a C++ method must not throw (its C++ library is
 * another than ours). So a device's failure is kept until the next kernel fails of it, or
 * `relaxd.opencl.failure` tells it, and kernels are built when they are launched first: a launch is
 * a function of TVM's interface, which carries errors over.
 */
#include <dlfcn.h>
#include <pack_args.h>
#include <support/bytes_io.h>
#include <thread_storage_scope.h>
#include <tvm/ffi/cast.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/device_api.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace relaxd {

using namespace tvm;
using namespace tvm::runtime;

using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_ulong = uint64_t;
using Handle = void *;

constexpr cl_int kSuccess = 0;
constexpr cl_uint kBlocking = 1;
constexpr cl_ulong kReadWrite = 1, kCpu = 1 << 1, kGpu = 1 << 2, kAccelerator = 1 << 3,
                   kAll = 0xFFFFFFFF;
constexpr cl_uint kMaxGroup = 0x1004, kGlobalMemory = 0x101F, kLocalMemory = 0x1023, kName = 0x102B,
                  kVersion = 0x102D;
constexpr cl_uint kBuildLog = 0x1183;

/* The driver's functions, by their names without `cl`. */
struct Driver {
  cl_int (*GetPlatformIDs)(cl_uint, Handle *, cl_uint *);
  cl_int (*GetDeviceIDs)(Handle, cl_ulong, cl_uint, Handle *, cl_uint *);
  cl_int (*GetDeviceInfo)(Handle, cl_uint, size_t, void *, size_t *);
  Handle (*CreateContext)(const intptr_t *, cl_uint, const Handle *, void *, void *, cl_int *);
  Handle (*CreateCommandQueue)(Handle, Handle, cl_ulong, cl_int *);
  Handle (*CreateBuffer)(Handle, cl_ulong, size_t, void *, cl_int *);
  cl_int (*ReleaseMemObject)(Handle);
  cl_int (*EnqueueReadBuffer)(Handle, Handle, cl_uint, size_t, size_t, void *, cl_uint,
                              const Handle *, Handle *);
  cl_int (*EnqueueWriteBuffer)(Handle, Handle, cl_uint, size_t, size_t, const void *, cl_uint,
                               const Handle *, Handle *);
  cl_int (*EnqueueCopyBuffer)(Handle, Handle, Handle, size_t, size_t, size_t, cl_uint,
                              const Handle *, Handle *);
  cl_int (*Finish)(Handle);
  Handle (*CreateProgramWithSource)(Handle, cl_uint, const char **, const size_t *, cl_int *);
  cl_int (*BuildProgram)(Handle, cl_uint, const Handle *, const char *, void *, void *);
  cl_int (*GetProgramBuildInfo)(Handle, Handle, cl_uint, size_t, void *, size_t *);
  cl_int (*ReleaseProgram)(Handle);
  Handle (*CreateKernel)(Handle, const char *, cl_int *);
  cl_int (*ReleaseKernel)(Handle);
  cl_int (*SetKernelArg)(Handle, cl_uint, size_t, const void *);
  cl_int (*EnqueueNDRangeKernel)(Handle, Handle, cl_uint, const size_t *, const size_t *,
                                 const size_t *, cl_uint, const Handle *, Handle *);

  /* False where no driver is installed. */
  bool Open() {
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) library = dlopen("libOpenCL.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    bool complete = true;
    auto find = [&](auto *function, const char *name) {
      *reinterpret_cast<void **>(function) = dlsym(library, name);
      complete = complete && *function != nullptr;
    };
#define FIND(name) find(&name, "cl" #name)
    FIND(GetPlatformIDs), FIND(GetDeviceIDs), FIND(GetDeviceInfo), FIND(CreateContext),
        FIND(CreateCommandQueue);
    FIND(CreateBuffer), FIND(ReleaseMemObject), FIND(EnqueueReadBuffer), FIND(EnqueueWriteBuffer),
        FIND(EnqueueCopyBuffer);
    FIND(Finish), FIND(CreateProgramWithSource), FIND(BuildProgram), FIND(GetProgramBuildInfo),
        FIND(ReleaseProgram);
    FIND(CreateKernel), FIND(ReleaseKernel), FIND(SetKernelArg), FIND(EnqueueNDRangeKernel);
#undef FIND
    return complete;
  }
};

/* What a tensor's data points to: TVM compares addresses with the alignment it asked for. */
struct alignas(kAllocAlignment) Buffer {
  Handle memory;
};

class OpenCL final : public DeviceAPI {
 public:
  static OpenCL *Global() {
    static OpenCL *instance = new OpenCL();
    return instance;
  }

  bool present() const { return queue_ != nullptr; }
  Handle device() const { return device_; }
  Handle context() const { return context_; }
  Handle queue() const { return queue_; }
  const Driver &driver() const { return driver_; }

  /* What failed since this was last asked, empty where nothing did. */
  std::string TakeFailure() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(failure_, std::string());
  }

  /* Keeps the first failure. */
  bool Succeeded(cl_int status, const char *what) {
    if (status == kSuccess) return true;
    std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.empty())
      failure_ = std::string(what) + " failed with OpenCL status " + std::to_string(status);
    return false;
  }

  void SetDevice(Device) final {}

  void GetAttr(Device dev, DeviceAttrKind kind, ffi::Any *value) final {
    if (kind == kExist) {
      *value = present() && dev.device_id == 0;
    } else if (!present()) {
      return;
    } else if (kind == kDeviceName) {
      *value = ffi::String(Text(kName));
    } else if (kind == kDriverVersion) {
      *value = ffi::String(Text(kVersion));
    } else if (kind == kMaxThreadsPerBlock) {
      *value = static_cast<int64_t>(Number<size_t>(kMaxGroup));
    } else if (kind == kMaxSharedMemoryPerBlock) {
      *value = static_cast<int64_t>(Number<cl_ulong>(kLocalMemory));
    } else if (kind == kTotalGlobalMemory) {
      *value = static_cast<int64_t>(Number<cl_ulong>(kGlobalMemory));
    }
  }

  void *AllocDataSpace(Device, size_t nbytes, size_t, DLDataType) final {
    if (!present()) return nullptr;
    cl_int status = kSuccess;
    Handle memory =
        driver_.CreateBuffer(context_, kReadWrite, nbytes == 0 ? 1 : nbytes, nullptr, &status);
    return Succeeded(status, "clCreateBuffer") ? new Buffer{memory} : nullptr;
  }

  void FreeDataSpace(Device, void *data) final {
    if (data == nullptr) return;
    auto *buffer = static_cast<Buffer *>(data);
    Succeeded(driver_.ReleaseMemObject(buffer->memory), "clReleaseMemObject");
    delete buffer;
  }

  void StreamSync(Device, TVMStreamHandle) final {
    if (present()) Succeeded(driver_.Finish(queue_), "clFinish");
  }

 protected:
  void CopyDataFromTo(const void *from, size_t from_offset, void *to, size_t to_offset, size_t size,
                      Device dev_from, Device dev_to, DLDataType, TVMStreamHandle) final {
    if (size == 0) return;
    auto memory = [](const void *data) { return static_cast<const Buffer *>(data)->memory; };
    bool reads = dev_from.device_type == kDLOpenCL, writes = dev_to.device_type == kDLOpenCL;
    if (!present() || from == nullptr || to == nullptr) {
      Succeeded(-1, "copying to or from memory that could not be had");
    } else if (reads && writes) {
      Succeeded(driver_.EnqueueCopyBuffer(queue_, memory(from), memory(to), from_offset, to_offset,
                                          size, 0, nullptr, nullptr),
                "clEnqueueCopyBuffer");
    } else if (reads) {
      Succeeded(driver_.EnqueueReadBuffer(queue_, memory(from), kBlocking, from_offset, size,
                                          static_cast<char *>(to) + to_offset, 0, nullptr, nullptr),
                "clEnqueueReadBuffer");
    } else {
      Succeeded(driver_.EnqueueWriteBuffer(queue_, memory(to), kBlocking, to_offset, size,
                                           static_cast<const char *>(from) + from_offset, 0,
                                           nullptr, nullptr),
                "clEnqueueWriteBuffer");
    }
  }

 private:
  OpenCL() {
    if (!driver_.Open() || !Choose()) return;
    cl_int status = kSuccess;
    context_ = driver_.CreateContext(nullptr, 1, &device_, nullptr, nullptr, &status);
    if (!Succeeded(status, "clCreateContext")) return;
    Handle queue = driver_.CreateCommandQueue(context_, device_, 0, &status);
    if (Succeeded(status, "clCreateCommandQueue")) queue_ = queue;
  }

  /* The first GPU of any platform, else an accelerator, else a processor. */
  bool Choose() {
    cl_uint count = 0;
    if (driver_.GetPlatformIDs(0, nullptr, &count) != kSuccess || count == 0) return false;
    std::vector<Handle> platforms(count);
    driver_.GetPlatformIDs(count, platforms.data(), nullptr);
    for (cl_ulong type : {kGpu, kAccelerator, kCpu, kAll}) {
      for (Handle platform : platforms) {
        if (driver_.GetDeviceIDs(platform, type, 1, &device_, nullptr) == kSuccess) return true;
      }
    }
    return false;
  }

  template <typename T>
  T Number(cl_uint what) const {
    T value = 0;
    driver_.GetDeviceInfo(device_, what, sizeof(value), &value, nullptr);
    return value;
  }

  std::string Text(cl_uint what) const {
    size_t size = 0;
    driver_.GetDeviceInfo(device_, what, 0, nullptr, &size);
    std::string text(size, '\0');
    driver_.GetDeviceInfo(device_, what, size, &text[0], nullptr);
    return text.c_str();
  }

  Driver driver_ = {};
  Handle device_ = nullptr, context_ = nullptr, queue_ = nullptr;
  std::mutex mutex_;
  std::string failure_;
};

/* A module's sources, built by the driver when the first kernel of them is launched. */
class Program : public ffi::ModuleObj {
 public:
  Program(std::string source, std::unordered_map<std::string, FunctionInfo> kernels)
      : source_(std::move(source)), kernels_(std::move(kernels)) {}

  ~Program() {
    if (program_ != nullptr) OpenCL::Global()->driver().ReleaseProgram(program_);
  }

  const char *kind() const final { return "opencl"; }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String &name) final;

  ffi::String InspectSource(const ffi::String &) const final { return source_; }

  Handle Built() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (program_ != nullptr) return program_;
    auto *opencl = OpenCL::Global();
    if (!opencl->present())
      TVM_FFI_THROW(RuntimeError) << "there is no OpenCL device; " << opencl->TakeFailure();
    const Driver &driver = opencl->driver();
    Handle device = opencl->device();
    const char *text = source_.c_str();
    size_t length = source_.size();
    cl_int status = kSuccess;
    Handle program = driver.CreateProgramWithSource(opencl->context(), 1, &text, &length, &status);
    if (status == kSuccess) status = driver.BuildProgram(program, 1, &device, "", nullptr, nullptr);
    if (status != kSuccess) {
      size_t size = 0;
      driver.GetProgramBuildInfo(program, device, kBuildLog, 0, nullptr, &size);
      std::string log(size, '\0');
      driver.GetProgramBuildInfo(program, device, kBuildLog, size, &log[0], nullptr);
      TVM_FFI_THROW(RuntimeError) << "the OpenCL driver refused the kernels with status " << status
                                  << ": " << log.c_str();
    }
    return program_ = program;
  }

 private:
  std::string source_;
  std::unordered_map<std::string, FunctionInfo> kernels_;
  std::mutex mutex_;
  Handle program_ = nullptr;
};

/* One kernel; setting its arguments and launching it are one step for all threads. */
class Kernel {
 public:
  Kernel(ffi::ObjectPtr<Program> program, const FunctionInfo &info)
      : program_(std::move(program)), name_(info->name) {
    for (DLDataType type : info->arg_types)
      sizes_.push_back(type.code == kDLOpaqueHandle ? 0 : type.bits / 8);
    config_.Init(sizes_.size(), info->launch_param_tags);
  }

  Kernel(const Kernel &) = delete;
  ~Kernel() {
    if (kernel_ != nullptr) OpenCL::Global()->driver().ReleaseKernel(kernel_);
  }

  void Launch(ffi::PackedArgs args, void **addresses) {
    auto *opencl = OpenCL::Global();
    std::string failure = opencl->TakeFailure();
    if (!failure.empty()) TVM_FFI_THROW(RuntimeError) << failure;
    ThreadWorkLoad load = config_.Extract(args);
    for (size_t i = 0; i < 3; ++i) load.work_size[i] *= load.work_size[i + 3];
    std::lock_guard<std::mutex> lock(mutex_);
    if (kernel_ == nullptr) {
      cl_int status = kSuccess;
      Handle kernel = opencl->driver().CreateKernel(program_->Built(), name_.c_str(), &status);
      Check(status, "clCreateKernel");
      kernel_ = kernel;
    }
    for (cl_uint i = 0; i < sizes_.size(); ++i) {
      if (sizes_[i] != 0) {
        Check(opencl->driver().SetKernelArg(kernel_, i, sizes_[i], addresses[i]), "clSetKernelArg");
      } else {
        auto *buffer = *static_cast<Buffer **>(addresses[i]);
        Check(opencl->driver().SetKernelArg(kernel_, i, sizeof(Handle),
                                            buffer == nullptr ? nullptr : &buffer->memory),
              "clSetKernelArg");
      }
    }
    Check(opencl->driver().EnqueueNDRangeKernel(
              opencl->queue(), kernel_, static_cast<cl_uint>(config_.work_dim()), nullptr,
              load.work_size, load.work_size + 3, 0, nullptr, nullptr),
          "clEnqueueNDRangeKernel");
  }

 private:
  void Check(cl_int status, const char *what) {
    if (status != kSuccess)
      TVM_FFI_THROW(RuntimeError) << what << " of " << name_ << " failed with OpenCL status "
                                  << status;
  }

  ffi::ObjectPtr<Program> program_;
  std::string name_;
  Handle kernel_ = nullptr;
  std::vector<size_t> sizes_;
  LaunchParamConfig config_;
  std::mutex mutex_;
};

ffi::Optional<ffi::Function> Program::GetFunction(const ffi::String &name) {
  auto found = kernels_.find(std::string(name));
  if (found == kernels_.end()) return std::nullopt;
  auto kernel = std::make_shared<Kernel>(ffi::GetObjectPtr<Program>(this), found->second);
  auto launch = [kernel](ffi::PackedArgs args, ffi::Any *, void **addresses) {
    kernel->Launch(args, addresses);
  };
  return PackFuncVoidAddr(launch, found->second->arg_types);
}

/* As TVM's code generator writes it: the format, the kernels by name, the sources. */
ffi::Module Load(const ffi::Bytes &bytes) {
  support::BytesInStream stream(bytes);
  std::string format, name, source;
  uint64_t count = 0;
  bool whole = stream.Read(&format) && stream.Read(&count);
  std::unordered_map<std::string, FunctionInfo> kernels;
  for (uint64_t i = 0; whole && i < count; ++i) {
    FunctionInfo info{ffi::ObjectPtr<FunctionInfoObj>()};
    whole = stream.Read(&name) && stream.Read(&info);
    if (whole) kernels.emplace(name, info);
  }
  if (!whole || !stream.Read(&source) || format != "cl")
    TVM_FFI_THROW(ValueError) << "this is no OpenCL module of TVM 0.27";
  return ffi::Module(ffi::make_object<Program>(std::move(source), std::move(kernels)));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("device_api.opencl",
           []() -> void * { return static_cast<DeviceAPI *>(OpenCL::Global()); })
      .def("ffi.Module.load_from_bytes.opencl", Load)
      .def("relaxd.opencl.failure", []() { return ffi::String(OpenCL::Global()->TakeFailure()); });
}

}  // namespace relaxd
