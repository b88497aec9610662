/* The stream that TVM's runtime reads executables and tensors from. */
#ifndef RELAXD_SUPPORT_IO_H
#define RELAXD_SUPPORT_IO_H

#include <tvm/support/serializer.h>

#include <cstddef>

namespace tvm {
namespace support {

class Stream {
 public:
  virtual ~Stream() = default;
  virtual size_t Read(void *data, size_t size) = 0;
  virtual size_t Write(const void *data, size_t size) = 0;

  template <typename T>
  void Write(const T &value) {
    Serializer<T>::Write(this, value);
  }
  template <typename T>
  bool Read(T *value) {
    return Serializer<T>::Read(this, value);
  }
  template <typename T>
  void WriteArray(const T *values, size_t count) {
    for (size_t index = 0; index < count; ++index) Serializer<T>::Write(this, values[index]);
  }
  template <typename T>
  bool ReadArray(T *values, size_t count) {
    for (size_t index = 0; index < count; ++index) {
      if (!Serializer<T>::Read(this, values + index)) return false;
    }
    return true;
  }
};

}  // namespace support
}  // namespace tvm
#endif
