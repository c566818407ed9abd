/// \file
/// Arguments of operations with a sliding window. The window slides along all extents of a value but the channels: one
/// to three directions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "model/graph/description.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model {

/// Returns the number of directions of a value: its extents without the channels. Throws std::invalid_argument, with
/// the shape, unless there are one to three. `reader`, for the message: "a pool".
std::size_t directions_of(const Shape& shape, std::string_view reader);
/// Returns the value as an image. A series is one pixel high.
ImageShape image_of_places(const Shape& shape, std::string_view reader);
/// Returns the shape of a value with this many directions.
Shape shape_of_places(const ImageShape& image, std::size_t directions);

// Arguments of such operations. `size`: name of the argument for the window's size.
NetworkOption size_argument(std::string_view size);
NetworkOption stride_argument();
/// The stride of pools. Its default is the window's size.
NetworkOption pool_stride_argument();
NetworkOption padding_argument();
NetworkOption dilation_argument();

/// Returns a number for each direction, from a list of one number or of one per direction. Throws std::invalid_argument
/// for another length.
Numbers for_directions(const Numbers& numbers, std::string_view name, std::size_t directions);
/// Returns the numbers of padding "2" or "1,0"; 0 for "same" and "valid". Throws std::invalid_argument for other words.
Numbers padding_numbers(const std::string& padding);
/// Returns the window that a call describes. Throws std::invalid_argument if it does not fit the image.
Sliding window_of(const Call& call, std::string_view size, const ImageShape& in, std::size_t directions);

/// Returns the pool that a call describes by its argument "window" and related arguments. Throws std::invalid_argument
/// if a window would cover only padding.
Pool pool_of(const Call& call, const Shape& in);

/// "3x3", "3x3/2", "1x3/1x2 dilated 1x2"
std::string window_text(const Sliding& window, std::size_t directions);

}  // namespace lockstep::model
