/* Streams over bytes in memory. */
#ifndef RELAXD_SUPPORT_BYTES_IO_H
#define RELAXD_SUPPORT_BYTES_IO_H

#include <tvm/ffi/string.h>
#include <tvm/support/io.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace tvm {
namespace support {

class BytesInStream : public Stream {
 public:
  explicit BytesInStream(const std::string &bytes) : data_(bytes.data()), size_(bytes.size()) {}
  explicit BytesInStream(const ffi::Bytes &bytes) : data_(bytes.data()), size_(bytes.size()) {}
  using Stream::Read;
  using Stream::Write;
  size_t Read(void *data, size_t size) final {
    size_t count = std::min(size, size_ - position_);
    if (count != 0) std::memcpy(data, data_ + position_, count);
    position_ += count;
    return count;
  }
  size_t Write(const void *, size_t) final {
    TVM_FFI_THROW(RuntimeError) << "this stream is read alone";
  }

 private:
  const char *data_;
  size_t size_;
  size_t position_ = 0;
};

class BytesOutStream : public Stream {
 public:
  explicit BytesOutStream(std::string *bytes) : bytes_(bytes) {}
  using Stream::Read;
  using Stream::Write;
  size_t Read(void *, size_t) final {
    TVM_FFI_THROW(RuntimeError) << "this stream is written alone";
  }
  size_t Write(const void *data, size_t size) final {
    bytes_->append(static_cast<const char *>(data), size);
    return size;
  }

 private:
  std::string *bytes_;
};

}  // namespace support
}  // namespace tvm
#endif
