#include <cstdio>
#include <type_traits>
#include <vector>

#include <relaxd_mlp.hpp>
#include <relaxd_odd.hpp>

using namespace relaxd;

static_assert(mlp::ranges::n.max == 8 && odd::ranges::seq_len.multiple == 4);

template <typename Tensor>
void print(const char *name, const Tensor &tensor) {
  std::printf("%s", name);
  for (auto extent : tensor.shape) std::printf(" %d", static_cast<int>(extent));
  std::printf(":");
  for (auto value : tensor.data) std::printf(" %.6f", static_cast<double>(value));
  std::printf("\n");
}

template <typename Error, typename Call>
void fails(Call call) {
  try {
    call();
  } catch (const Error &error) {
    std::printf("%d %s\n", error.code(), error.what());
  }
}

int main(int, char **arguments) {
  const auto weights = mlp::Weights::read(arguments[1]);
  mlp::Model first(weights), second(weights);
  second.bind({3});
  std::vector<float> x(8 * 32);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 32) / 32;
  for (std::int64_t n : {1, 2, 8}) {
    first.bind({n});
    print("y", first.run({{x.data(), static_cast<std::size_t>(n) * 32}}).y);
  }
  print("y", second.run({{x.data(), 96}}).y);
  fails<mlp::Error>([&] { first.bind({9}); });
  fails<mlp::Error>([&] { first.run({x}); });
  first.bind({2});
  fails<mlp::Error>([&] { first.run({x}); });
  fails<mlp::Error>([&] { mlp::Weights::read("absent.bin"); });

  odd::Model net;
  net.bind({1, 2, 4});
  std::vector<float> values{1, 0, 2, 0, 0, 3, 0, 0};
  const std::vector<std::int64_t> numbers{5, 6};
  const std::vector<std::uint8_t> gate{1, 0};
  auto outputs = net.run({values, numbers, gate});
  print("return", outputs.return_);
  print("N", outputs.N);
  print("where", outputs.where);
  net.bind({1, 2, 0});
  values.clear();
  outputs = net.run({values, numbers, gate});
  print("return", outputs.return_);
  print("where", outputs.where);
  fails<odd::Error>([&] { net.bind({1, 2, 6}); });
}
