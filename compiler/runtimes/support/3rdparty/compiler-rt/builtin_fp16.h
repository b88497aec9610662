/* Half precision to single, with the compiler's own type: all that sorting asks of this header. */
#ifndef RELAXD_SUPPORT_BUILTIN_FP16_H
#define RELAXD_SUPPORT_BUILTIN_FP16_H

#include <cstdint>
#include <cstring>
#include <type_traits>

template <typename From, typename FromBits, int FromMantissa, typename To, typename ToBits,
          int ToMantissa>
inline To __extendXfYf2__(From bits) {
  static_assert(std::is_same<FromBits, uint16_t>::value && FromMantissa == 10,
                "only half precision is read");
  _Float16 half;
  std::memcpy(&half, &bits, sizeof half);
  return static_cast<To>(half);
}

#endif
