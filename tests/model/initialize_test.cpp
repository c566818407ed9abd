#include "model/initialize.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "model/random.hpp"

namespace lockstep::model {
namespace {

using Scheme = Initializer::Scheme;

/// The known answers shipped with Random123 (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

constexpr std::int64_t kFanIn = 300, kFanOut = 200;

std::vector<float> drawn(const Initializer& initializer, std::size_t count = 60000, std::uint64_t seed = 1,
                         std::string_view name = "dense_1/weight") {
  std::vector<float> values(count);
  initialize(values, initializer, kFanIn, kFanOut, seed, name);
  return values;
}

double mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += v;
  return sum / static_cast<double>(values.size());
}
double deviation(const std::vector<float>& values) {
  double sum = 0;
  const double middle = mean(values);
  for (const float v : values) sum += (v - middle) * (v - middle);
  return std::sqrt(sum / static_cast<double>(values.size()));
}
double greatest(const std::vector<float>& values) {
  double most = 0;
  for (const float v : values) most = std::max(most, std::abs(static_cast<double>(v)));
  return most;
}

TEST(Initialize, Constants) {
  EXPECT_EQ(drawn({Scheme::zeros, 3}, 5), std::vector<float>(5, 0.0f));
  EXPECT_EQ(drawn({Scheme::constant, 0.1}, 5), std::vector<float>(5, 0.1f));
}

/// The standard error of the mean is deviation / sqrt(n), 0.4 % of the deviation; that of the deviation is less.
TEST(Initialize, UniformsHaveTheirWidth) {
  const std::vector<std::pair<Initializer, double>> cases{{{Scheme::uniform, 0.3}, 0.3},
                                                          {{Scheme::xavier_uniform, 0}, std::sqrt(6.0 / 500)},
                                                          {{Scheme::he_uniform, 0}, std::sqrt(6.0 / 300)},
                                                          {{Scheme::fan_in_uniform, 0}, 1 / std::sqrt(300.0)}};
  for (const auto& [initializer, width] : cases) {
    const auto values = drawn(initializer);
    const double expected = width / std::sqrt(3.0);
    EXPECT_NEAR(mean(values), 0, 0.02 * expected) << to_string(initializer);
    EXPECT_NEAR(deviation(values), expected, 0.015 * expected) << to_string(initializer);
    EXPECT_LE(greatest(values), width * 1.000001) << to_string(initializer);
    EXPECT_GE(greatest(values), width * 0.999) << to_string(initializer);
  }
}

TEST(Initialize, NormalsHaveTheirDeviation) {
  const std::vector<std::pair<Initializer, double>> cases{{{Scheme::normal, 0.3}, 0.3},
                                                          {{Scheme::xavier_normal, 0}, std::sqrt(2.0 / 500)},
                                                          {{Scheme::he_normal, 0}, std::sqrt(2.0 / 300)},
                                                          {{Scheme::lecun_normal, 0}, std::sqrt(1.0 / 300)}};
  for (const auto& [initializer, expected] : cases) {
    const auto values = drawn(initializer);
    EXPECT_NEAR(mean(values), 0, 0.02 * expected) << to_string(initializer);
    EXPECT_NEAR(deviation(values), expected, 0.015 * expected) << to_string(initializer);
    EXPECT_GE(greatest(values), 3.5 * expected) << to_string(initializer);
    const auto within = std::ranges::count_if(values, [&](float v) { return std::abs(v) < expected; });
    EXPECT_NEAR(static_cast<double>(within) / 60000, 0.6827, 0.01) << to_string(initializer);
  }
}

TEST(Initialize, TruncatedNormalStaysWithinTwoDeviations) {
  const auto values = drawn({Scheme::truncated_normal, 0.1});
  EXPECT_LE(greatest(values), 0.2000001);
  EXPECT_GE(greatest(values), 0.199);
  // A normal distribution that is truncated at two deviations has 0.8796 of the deviation.
  EXPECT_NEAR(deviation(values), 0.08796, 0.0015);
  EXPECT_NEAR(mean(values), 0, 0.002);
}

TEST(Initialize, DependsOnSeedNameAndIndexOnly) {
  for (const Scheme scheme : {Scheme::he_normal, Scheme::xavier_uniform, Scheme::truncated_normal}) {
    const Initializer initializer{scheme, 0.1};
    const auto values = drawn(initializer, 1000);
    static_cast<void>(drawn(initializer, 10, 9, "another/weight"));
    EXPECT_EQ(values, drawn(initializer, 1000)) << "what was drawn in between does not matter";
    const auto longer = drawn(initializer, 2000);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), longer.begin())) << "an element does not depend on the length";
    EXPECT_NE(values, drawn(initializer, 1000, 2));
    EXPECT_NE(values, drawn(initializer, 1000, 1, "dense_2/weight"));
    EXPECT_NE(values, drawn(initializer, 1000, std::uint64_t{1} << 32));
  }
}

TEST(Initialize, RefusesImpossibleFans) {
  std::vector<float> values(4);
  EXPECT_THROW(initialize(values, {Scheme::he_normal, 0}, 0, 1, 1, "w"), std::invalid_argument);
}

TEST(ParseInitializer, AndBack) {
  for (const char* text :
       {"zeros", "constant(0.1)", "uniform(0.05)", "normal(0.02)", "truncated_normal(0.1)", "xavier_uniform",
        "xavier_normal", "he_uniform", "he_normal", "lecun_normal", "fan_in_uniform", "constant(-1)"}) {
    EXPECT_EQ(to_string(parse_initializer(text)), text);
  }
  EXPECT_EQ(parse_initializer("truncated_normal(0.1)").value, 0.1);
  for (const char* text : {"", "henormal", "normal", "normal()", "normal(x)", "normal(0.1", "normal(0.1))", "zeros(1)",
                           "normal(-1)", "normal(inf)", "normal(0.1) "}) {
    EXPECT_THROW(parse_initializer(text), std::invalid_argument) << text;
  }
}

TEST(ParseInitializers, OfAllLayersOfSomeAndBoth) {
  for (const char* text :
       {"he_normal", "dense_1=normal(0.0357)", "he_normal,dense_1=normal(0.5),dense_2=constant(1)"}) {
    EXPECT_EQ(to_string(parse_initializers(text)), text);
  }
  const Initializers both = parse_initializers("auto,dense_1=normal(0.5)");
  EXPECT_FALSE(both.all);
  ASSERT_EQ(both.layers.size(), 1u);
  EXPECT_EQ(both.layers[0].second.value, 0.5);
  for (const char* text : {"", "zeros,he_normal", "dense_1=zeros,dense_1=zeros", "=zeros", "dense_1=", "dense_1=zeros,",
                           "dense_1=normal"}) {
    EXPECT_THROW(parse_initializers(text), std::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace lockstep::model
