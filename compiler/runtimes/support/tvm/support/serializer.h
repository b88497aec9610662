/* Values to and from a stream of bytes, little-endian: numbers as they are, texts and vectors after
 * a 64-bit count. */
#ifndef RELAXD_SUPPORT_SERIALIZER_H
#define RELAXD_SUPPORT_SERIALIZER_H

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tvm {
namespace support {

class Stream;

/* The general case: whatever can be copied byte by byte. Types of other forms specialise it. */
template <typename T>
struct Serializer {
  static constexpr bool enabled = std::is_trivially_copyable<T>::value;
  template <typename S>
  static void Write(S *stream, const T &value) {
    static_assert(enabled, "the type needs a serializer of its own");
    stream->Write(static_cast<const void *>(&value), sizeof(T));
  }
  template <typename S>
  static bool Read(S *stream, T *value) {
    static_assert(enabled, "the type needs a serializer of its own");
    return stream->Read(static_cast<void *>(value), sizeof(T)) == sizeof(T);
  }
};

template <>
struct Serializer<std::string> {
  static constexpr bool enabled = true;
  template <typename S>
  static void Write(S *stream, const std::string &text) {
    stream->template Write<uint64_t>(text.size());
    stream->Write(static_cast<const void *>(text.data()), text.size());
  }
  template <typename S>
  static bool Read(S *stream, std::string *text) {
    uint64_t size = 0;
    if (!stream->Read(&size)) return false;
    text->resize(static_cast<size_t>(size));
    return stream->Read(static_cast<void *>(&(*text)[0]), text->size()) == text->size();
  }
};

template <typename T>
struct Serializer<std::vector<T>> {
  static constexpr bool enabled = true;
  template <typename S>
  static void Write(S *stream, const std::vector<T> &items) {
    stream->template Write<uint64_t>(items.size());
    for (const T &item : items) Serializer<T>::Write(stream, item);
  }
  template <typename S>
  static bool Read(S *stream, std::vector<T> *items) {
    uint64_t size = 0;
    if (!stream->Read(&size)) return false;
    items->resize(static_cast<size_t>(size));
    for (T &item : *items) {
      if (!Serializer<T>::Read(stream, &item)) return false;
    }
    return true;
  }
};

template <>
struct Serializer<ffi::String> {
  static constexpr bool enabled = true;
  template <typename S>
  static void Write(S *stream, const ffi::String &text) {
    Serializer<std::string>::Write(stream, std::string(text));
  }
  template <typename S>
  static bool Read(S *stream, ffi::String *text) {
    std::string read;
    if (!Serializer<std::string>::Read(stream, &read)) return false;
    *text = ffi::String(std::move(read));
    return true;
  }
};

template <typename T>
struct Serializer<ffi::Array<T>> {
  static constexpr bool enabled = true;
  template <typename S>
  static void Write(S *stream, const ffi::Array<T> &items) {
    stream->template Write<uint64_t>(items.size());
    for (const auto &item : items) Serializer<T>::Write(stream, item);
  }
  template <typename S>
  static bool Read(S *stream, ffi::Array<T> *items) {
    uint64_t size = 0;
    if (!stream->Read(&size)) return false;
    for (uint64_t index = 0; index < size; ++index) {
      T item{};
      if (!Serializer<T>::Read(stream, &item)) return false;
      items->push_back(item);
    }
    return true;
  }
};

}  // namespace support
}  // namespace tvm
#endif
