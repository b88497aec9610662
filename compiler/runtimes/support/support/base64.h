/* Tensors in JSON documents, which a device that runs models never reads: refused. */
#ifndef RELAXD_SUPPORT_BASE64_H
#define RELAXD_SUPPORT_BASE64_H

#include <tvm/ffi/error.h>
#include <tvm/support/io.h>

namespace tvm {
namespace support {

class Base64Stream : public Stream {
 public:
  explicit Base64Stream(Stream *) {}
  using Stream::Read;
  using Stream::Write;
  size_t Read(void *, size_t) final {
    TVM_FFI_THROW(RuntimeError) << "this runtime reads no tensors from JSON";
  }
  size_t Write(const void *, size_t) final {
    TVM_FFI_THROW(RuntimeError) << "this runtime writes no tensors to JSON";
  }
  void Finish() {}
  void InitPosition() {}
};

using Base64InStream = Base64Stream;
using Base64OutStream = Base64Stream;

}  // namespace support
}  // namespace tvm
#endif
