/* What the thread pool asks of texts. */
#ifndef RELAXD_SUPPORT_UTILS_H
#define RELAXD_SUPPORT_UTILS_H

#include <string>

namespace tvm {
namespace support {

inline bool IsNumber(const std::string &text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace support
}  // namespace tvm
#endif
