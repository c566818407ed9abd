/// \file
/// Arguments of operations whose window slides over a value along all its extents but the channels: one to three
/// directions, as many as the value has.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "model/graph/description.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model {

/// Directions of a value: its extents but the channels. Throws std::invalid_argument with the shape if there are none,
/// or more than three; `reader`: "a pool".
std::size_t directions_of(const Shape& shape, std::string_view reader);
/// The value as an image: a series is one pixel high.
ImageShape image_of_places(const Shape& shape, std::string_view reader);
/// The shape of a value with so many directions.
Shape shape_of_places(const ImageShape& image, std::size_t directions);

// Arguments; `size` names that of the window's size.
NetworkOption size_argument(std::string_view size);
NetworkOption stride_argument();
/// The window's size if it is not given.
NetworkOption pool_stride_argument();
NetworkOption padding_argument();
NetworkOption dilation_argument();

/// A list of one number, or of one for each direction, by direction. Throws std::invalid_argument for another length.
Numbers for_directions(const Numbers& numbers, std::string_view name, std::size_t directions);
/// Those of padding "2" or "1,0"; 0 for "same" and "valid". Throws std::invalid_argument for other words.
Numbers padding_numbers(const std::string& padding);
/// The window that a call describes. Throws std::invalid_argument if it is none for such an image.
Sliding window_of(const Call& call, std::string_view size, const ImageShape& in, std::size_t directions);

/// The pool over a value, by the argument "window" and its companions. Throws std::invalid_argument if a window would
/// see only padding.
Pool pool_of(const Call& call, const Shape& in);

/// "3x3", "3x3/2", "1x3/1x2 dilated 1x2"
std::string window_text(const Sliding& window, std::size_t directions);

}  // namespace lockstep::model
