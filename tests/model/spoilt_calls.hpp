/// \file
/// Tests the checks of an operation, given a description of its arguments. The valid call must pass, also with an empty
/// batch. Each corruption of one tensor must be refused with a message that names the operation.
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

/// So many rows of an argument for each sample.
constexpr std::int64_t each(std::int64_t rows) { return -rows; }

/// One argument of a call, and the changes that it tolerates.
struct Argument {
  std::string name;
  ElementType type;
  std::int64_t rows, columns;  ///< rows: a number, or each(number)
  bool optional = false;       ///< may be absent
  bool any_rows = false;       ///< no other argument determines the number of rows
  bool any_columns = false;
  std::set<ElementType> also{};  ///< other types that are accepted
  bool optional_if_empty = false, any_columns_if_empty = false;
};

using Tensors = std::vector<Tensor>;
using Call = std::function<void(const Tensors&)>;

/// Pairs of arguments: the first may have the same memory as the second.
using Shared = std::set<std::pair<std::size_t, std::size_t>>;

struct Overlaps {
  std::set<std::size_t> written;  ///< arguments that must not overlap those of `kept` …
  std::set<std::size_t> kept;
  Shared shared{};  ///< exceptions to this
};

/// Memory for arguments, each in a block of its own; it is never read.
inline Tensors tensors_for(const std::vector<Argument>& arguments, std::int64_t samples = 1) {
  constexpr std::size_t kBlock = 1 << 16;
  static std::vector<std::byte> memory(kBlock * 16);
  Tensors tensors;
  for (const Argument& argument : arguments) {
    std::byte* const data = memory.data() + kBlock * tensors.size();
    const std::int64_t rows = argument.rows < 0 ? -argument.rows * samples : argument.rows;
    tensors.push_back({data, argument.type, rows, argument.columns});
    EXPECT_LE(static_cast<std::size_t>(tensors.back().count()) * size_of(argument.type) * 2, kBlock);
  }
  return tensors;
}

/// Makes the valid call, then each corrupted one.
inline void examine(const std::string& operation, const std::vector<Argument>& arguments, const Overlaps& overlaps,
                    const Call& call) {
  SCOPED_TRACE(operation);
  const auto expect_refusal = [&](const Tensors& tensors, const std::string& what) {
    try {
      call(tensors);
      ADD_FAILURE() << operation << " took " << what;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith(operation + ": ")) << what;
    }
  };
  for (const std::int64_t samples : {2, 0}) {
    const Tensors good = tensors_for(arguments, samples);
    EXPECT_NO_THROW(call(good)) << samples;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Argument& argument = arguments[i];
      const auto spoilt = [&](auto spoil) {
        Tensors tensors = good;
        spoil(tensors[i]);
        return tensors;
      };
      for (const ElementType type : kTypes) {
        if (type == argument.type || argument.also.contains(type)) continue;
        expect_refusal(spoilt([&](Tensor& t) { t.type = type; }), argument.name + " as " + name_of(type));
      }
      if (!argument.any_rows) {
        expect_refusal(spoilt([](Tensor& t) { ++t.rows; }), argument.name + " with another row");
      }
      if (!argument.any_columns && !(argument.any_columns_if_empty && samples == 0)) {
        expect_refusal(spoilt([](Tensor& t) { ++t.columns; }), argument.name + " with another column");
      }
      const Tensors absent = spoilt([](Tensor& t) { t.data = nullptr; });
      if (argument.optional || (argument.optional_if_empty && samples == 0)) {
        EXPECT_NO_THROW(call(spoilt([](Tensor& t) { t = {}; }))) << argument.name;
      } else if (good[i].count() > 0) {
        expect_refusal(absent, "no " + argument.name);
      }
    }
    for (const std::size_t written : overlaps.written) {
      for (const std::size_t kept : overlaps.kept) {
        if (written == kept || good[written].count() == 0 || good[kept].count() == 0) continue;
        Tensors tensors = good;
        tensors[written].data = tensors[kept].data;
        const std::string pair = arguments[written].name + " on " + arguments[kept].name;
        if (overlaps.shared.contains({written, kept})) {
          EXPECT_NO_THROW(call(tensors)) << pair;
        } else {
          expect_refusal(tensors, pair);
        }
        // A partial overlap is never allowed.
        tensors[written].data = static_cast<std::byte*>(tensors[kept].data) + size_of(tensors[kept].type);
        expect_refusal(tensors, pair + " in part");
      }
    }
  }
}

}  // namespace lockstep::model::test
