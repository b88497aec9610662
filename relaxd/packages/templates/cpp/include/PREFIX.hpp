/* @name@, compiled by relaxd for @target@: the model in C++17. */
#ifndef @guard@_HPP
#define @guard@_HPP

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "@prefix@.h"

namespace relaxd::@module@ {

/* What a call found wrong; code: one of the RELAXD_ codes of @prefix@.h. */
class Error : public std::runtime_error {
 public:
  Error(int code, const std::string &message) : std::runtime_error(message), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

/* Elements in a row that somebody else owns. */
template <typename T>
class Span {
 public:
  Span() = default;
  Span(T *data, std::size_t size) : data_(data), size_(size) {}
  /* Of a vector, an array, std::span or anything else with data and size. */
  template <typename Container,
            typename = std::enable_if_t<std::is_convertible_v<
                decltype(std::declval<Container &>().data()), T *>>>
  Span(Container &&all) : data_(all.data()), size_(all.size()) {}

  T *data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  T *begin() const noexcept { return data_; }
  T *end() const noexcept { return data_ + size_; }
  T &operator[](std::size_t i) const { return data_[i]; }

 private:
  T *data_ = nullptr;
  std::size_t size_ = 0;
};

template <std::size_t Rank>
using Shape = std::array<std::int64_t, Rank>;

/* The number of elements of a shape. */
template <std::size_t Rank>
std::size_t count(const Shape<Rank> &shape) {
  std::size_t all = 1;
  for (std::int64_t extent : shape) all *= static_cast<std::size_t>(extent);
  return all;
}

/* An output, in C's order. */
template <typename T, std::size_t Rank>
struct Tensor {
  Span<const T> data;
  Shape<Rank> shape;
};

/* What bind takes. */
struct Dims {
@each dims@
  /* @about@ */
  std::int64_t @dim@;
@end@
};

/* The values that a dim may have: multiples of one number, from min to max. */
struct Range {
  std::int64_t min, max, multiple;
};

namespace ranges {
@each dims@
inline constexpr Range @dim@{@min@, @max@, @multiple@};
@end@
}  // namespace ranges

@each inputs@
/* The shape of @tensor@ at dims that bind takes. */
inline Shape<@rank@> shape_of_@tensor@([[maybe_unused]] const Dims &dims) {
  return {@shape@};
}

@end@
struct Inputs {
@each inputs@
  /* @about@ */
@each read@
  Span<const @type@> @tensor@;
@end@
@each written@
  Span<@type@> @tensor@;
@end@
@end@
};

/* They lie in memory of the model, or of the inputs, until the model's next bind or run. */
struct Outputs {
@each outputs@
  /* @about@ */
  Tensor<@type@, @rank@> @tensor@;
@end@
};

/* Bytes at a multiple of 64, as the library wants its memory. */
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t size)
      : at_(static_cast<unsigned char *>(::operator new(size + 1, alignment()))), size_(size) {}
  unsigned char *get() const noexcept { return at_.get(); }
  std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::align_val_t alignment() { return std::align_val_t{64}; }
  struct Release {
    void operator()(unsigned char *at) const { ::operator delete(at, alignment()); }
  };
  std::unique_ptr<unsigned char, Release> at_;
  std::size_t size_ = 0;
};

@each weights@
/* The content of weights.bin, which any number of models share. */
class Weights {
 public:
  static Weights read(const std::string &path) {
    const auto size = static_cast<std::size_t>(@prefix@_interface()->weights);
    auto memory = std::make_shared<const Memory>(size);
    std::ifstream file(path, std::ios::binary);
    file.read(reinterpret_cast<char *>(memory->get()), static_cast<std::streamsize>(size));
    if (!file || file.peek() != std::ifstream::traits_type::eof())
      throw Error(RELAXD_USAGE, path + " is not the file of weights of @short@");
    Weights weights(memory->get());
    weights.owner_ = std::move(memory);
    return weights;
  }

  /* Of memory that holds them at a multiple of 64 as long as any model, such as a mapped file. */
  explicit Weights(const void *at) : at_(at) {}
  const void *get() const noexcept { return at_; }

 private:
  std::shared_ptr<const Memory> owner_;
  const void *at_;
};

@end@
/* A context of the model, for one thread at a time: bind, then run as often as you like. */
class Model {
 public:
@each weights@
  /* host: threads and memory, as @prefix@.h describes them; without one, one thread. */
  explicit Model(Weights weights, const relaxd_host *host = nullptr)
      : weights_(std::move(weights)), context_(open(weights_.get(), host)) {}
@end@
@each embedded@
  /* host: threads and memory, as @prefix@.h describes them; without one, one thread. */
  explicit Model(const relaxd_host *host = nullptr) : context_(open(nullptr, host)) {}
@end@

  /* Sets the dims, after which outputs of earlier runs are void. Throws Error, such as for a dim
   * that is out of its range. */
  void bind(const Dims &dims) {
    bound_ = false;
    const std::int64_t values[@dim_count@ + 1] = {
@each dims@
        dims.@dim@,
@end@
    };
    const std::int64_t need = @prefix@_bind(get(), values);
    if (need < 0) check(static_cast<int>(-need));
    if (static_cast<std::size_t>(need) > arena_.size() || arena_.get() == nullptr)
      arena_ = Memory(static_cast<std::size_t>(need));
    check(@prefix@_arena(get(), arena_.get()));
    dims_ = dims;
    bound_ = true;
  }

  /* Computes the outputs. Throws Error, such as for an input with another number of elements than
   * the dims give it. */
  Outputs run(const Inputs &inputs) {
    if (!bound_) throw Error(RELAXD_USAGE, "bind the dims before a run");
    const void *given[@input_count@ + 1] = {
@each inputs@
        pointer("@tensor@", inputs.@tensor@, count(shape_of_@tensor@(dims_))),
@end@
    };
    check(@prefix@_run(get(), given, nullptr));
    return {
@each outputs@
        output<@type@, @rank@>(@index@),
@end@
    };
  }

 private:
  struct Close {
    void operator()(@prefix@ *context) const {
      @prefix@_close(context);
      ::operator delete(context, std::align_val_t{64});
    }
  };
  using Context = std::unique_ptr<@prefix@, Close>;

  static Context open(const void *weights, const relaxd_host *host) {
    void *at = ::operator new(@prefix@_size(), std::align_val_t{64});
    Context context(static_cast<@prefix@ *>(at));
    const int status = @prefix@_open(context.get(), weights, host);
    if (status != RELAXD_OK) throw Error(status, @prefix@_failure(context.get()));
    return context;
  }

  @prefix@ *get() const noexcept { return context_.get(); }

  void check(int status) const {
    if (status != RELAXD_OK) throw Error(status, @prefix@_failure(get()));
  }

  template <typename T>
  static const void *pointer(const char *name, const Span<T> &input, std::size_t wanted) {
    static const char nothing = 0;
    if (input.size() == wanted) return wanted == 0 ? &nothing : static_cast<const void *>(input.data());
    throw Error(RELAXD_USAGE, std::string(name) + " has " + std::to_string(input.size()) +
                                  " elements, it must have " + std::to_string(wanted));
  }

  template <typename T, std::size_t Rank>
  Tensor<T, Rank> output(int index) const {
    Tensor<T, Rank> result{};
    std::copy_n(@prefix@_shape(get(), index), Rank, result.shape.begin());
    result.data = {static_cast<const T *>(@prefix@_output(get(), index)), count(result.shape)};
    return result;
  }

@each weights@
  Weights weights_;
@end@
  Memory arena_;
  Context context_;
  Dims dims_{};
  bool bound_ = false;
};

}  // namespace relaxd::@module@

#endif
