/// \file
/// Examines the checked front of an operation by a description of its arguments: the valid call passes, also with an
/// empty batch, and each corruption of one of the tensors is refused with a message that names the operation.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "idle_operations.hpp"

namespace lockstep::model::test {

inline constexpr ElementType kCompute = kIdleTypes.compute, kMaster = kIdleTypes.master;
inline constexpr ElementType kTypes[] = {ElementType::float32, ElementType::float64,  ElementType::uint8,
                                         ElementType::int32,   ElementType::bfloat16, ElementType::uint64};

/// One argument of a call, and the changes that it tolerates.
struct Argument {
  std::string name;
  ElementType type;
  std::int64_t rows, columns;
  bool optional = false;  ///< may be absent
  bool any_rows = false;  ///< no other argument determines the number of rows
  bool any_columns = false;
  std::set<ElementType> also{};  ///< other types that are accepted
};

using Tensors = std::vector<Tensor>;
using Call = std::function<void(const Tensors&)>;

/// Pairs of arguments: the first may share all memory of the second.
using Shared = std::set<std::pair<std::size_t, std::size_t>>;

struct Subject {
  std::string operation;
  std::function<std::vector<Argument>(std::int64_t)> arguments;  ///< as a function of the number of samples
  Call call;
  std::set<std::size_t> written;  ///< arguments that must not overlap those of `kept` …
  std::set<std::size_t> kept;
  Shared shared{};  ///< … except for these
};

/// Memory for arguments, each in a block of its own; it is never read.
inline Tensors tensors_for(const std::vector<Argument>& arguments) {
  constexpr std::size_t kBlock = 1 << 16;
  static std::vector<std::byte> memory(kBlock * 16);
  Tensors tensors;
  for (const Argument& argument : arguments) {
    std::byte* const data = memory.data() + kBlock * tensors.size();
    tensors.push_back({data, argument.type, argument.rows, argument.columns});
    EXPECT_LE(static_cast<std::size_t>(tensors.back().count()) * size_of(argument.type) * 2, kBlock);
  }
  return tensors;
}

inline void expect_refusal(const Subject& subject, const Tensors& tensors, const std::string& what) {
  try {
    subject.call(tensors);
    ADD_FAILURE() << subject.operation << " took " << what;
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith(subject.operation + ": ")) << what;
  }
}

/// Makes the valid call, then each corrupted one.
inline void examine(const Subject& subject) {
  SCOPED_TRACE(subject.operation);
  for (const std::int64_t samples : {2, 0}) {
    const std::vector<Argument> arguments = subject.arguments(samples);
    const Tensors good = tensors_for(arguments);
    EXPECT_NO_THROW(subject.call(good)) << samples;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Argument& argument = arguments[i];
      const auto spoilt = [&](auto spoil) {
        Tensors tensors = good;
        spoil(tensors[i]);
        return tensors;
      };
      for (const ElementType type : kTypes) {
        if (type == argument.type || argument.also.contains(type)) continue;
        expect_refusal(subject, spoilt([&](Tensor& t) { t.type = type; }), argument.name + " as " + name_of(type));
      }
      if (!argument.any_rows) {
        expect_refusal(subject, spoilt([](Tensor& t) { ++t.rows; }), argument.name + " with another row");
      }
      if (!argument.any_columns) {
        expect_refusal(subject, spoilt([](Tensor& t) { ++t.columns; }), argument.name + " with another column");
      }
      const Tensors absent = spoilt([](Tensor& t) { t.data = nullptr; });
      if (argument.optional) {
        EXPECT_NO_THROW(subject.call(spoilt([](Tensor& t) { t = {}; }))) << argument.name;
      } else if (good[i].count() > 0) {
        expect_refusal(subject, absent, "no " + argument.name);
      }
    }
    for (const std::size_t written : subject.written) {
      for (const std::size_t kept : subject.kept) {
        if (written == kept || good[written].count() == 0 || good[kept].count() == 0) continue;
        Tensors tensors = good;
        tensors[written].data = tensors[kept].data;
        const std::string pair = arguments[written].name + " on " + arguments[kept].name;
        if (subject.shared.contains({written, kept})) {
          EXPECT_NO_THROW(subject.call(tensors)) << pair;
        } else {
          expect_refusal(subject, tensors, pair);
        }
        // A partial overlap is never allowed.
        tensors[written].data = static_cast<std::byte*>(tensors[kept].data) + size_of(tensors[kept].type);
        expect_refusal(subject, tensors, pair + " in part");
      }
    }
  }
}

}  // namespace lockstep::model::test
