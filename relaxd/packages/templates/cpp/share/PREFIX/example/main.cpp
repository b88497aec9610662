/* Runs @short@ once on made-up inputs, and prints the first numbers of its outputs. */
#include <cstdio>
#include <exception>
#include <vector>

#include <@prefix@.hpp>

namespace model = relaxd::@module@;

/* 0, 1/8 ... 7/8 for floats, 0 for whole numbers, which are good indices. */
template <typename T, std::size_t Rank>
std::vector<T> numbers(const model::Shape<Rank> &shape) {
  std::vector<T> all(model::count(shape));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<T>(static_cast<float>(i % 8) / 8);
  return all;
}

template <typename T, std::size_t Rank>
void print(const char *name, const model::Tensor<T, Rank> &tensor) {
  std::printf("%s [", name);
  for (std::int64_t extent : tensor.shape) std::printf(" %lld", static_cast<long long>(extent));
  std::printf(" ]");
  for (std::size_t i = 0; i < tensor.data.size() && i < 8; ++i)
    std::printf(" %.6g", static_cast<double>(tensor.data[i]));
  std::printf("\n");
}

@each weights@
int main(int count, char **arguments) try {
  if (count != 2) return std::fprintf(stderr, "usage: %s weights.bin\n", arguments[0]), 2;
  model::Model net(model::Weights::read(arguments[1]));
@end@
@each embedded@
int main() try {
  model::Model net;
@end@
  model::Dims dims{};
@each dims@
  dims.@dim@ = @value@;
@end@
  net.bind(dims);
@each inputs@
  auto input@index@ = numbers<@type@>(model::shape_of_@tensor@(dims));
@end@
  model::Inputs inputs;
@each inputs@
  inputs.@tensor@ = input@index@;
@end@
  const model::Outputs outputs = net.run(inputs);
@each outputs@
  print("@tensor@", outputs.@tensor@);
@end@
  return 0;
} catch (const std::exception &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
