// The sources of a dataset's data: this file, a file behind an external link, raw files, the sources of a virtual
// dataset. The library silently reads fill values for missing data.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "io/files/hdf5_handles.hpp"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;

/// Largest index that is counted in one call, which takes a second; a larger one is walked.
constexpr std::uint64_t kMaxCounted = std::uint64_t{1} << 18;
/// Largest number of chunks that are searched one by one for the positions of missing ones.
constexpr std::uint64_t kMaxWalked = std::uint64_t{1} << 20;
constexpr int kMaxChain = 16;                      ///< longest chain of datasets made of other datasets
constexpr std::uint64_t kMaxNumbered = 1'000'000;  ///< files with a number in their name

std::string rows_text(hsize_t first, hsize_t last) {
  return first == last ? fmt::format("sample {}", first) : fmt::format("samples {} to {}", first, last);
}

bool is_there(const fs::path& file) { return ::access(file.c_str(), R_OK) == 0; }

/// Searches as the library does (H5Pset_virtual_prefix, H5Pset_elink_prefix); empty: not found.
fs::path find_source(const fs::path& home, const std::string& name, const char* variable) {
  fs::path source(name);
  if (source.is_absolute()) {
    if (is_there(source)) return source;
    source = source.filename();
  }
  std::vector<fs::path> folders;
  if (const char* const prefixes = std::getenv(variable)) {
    constexpr std::string_view kOrigin = "${ORIGIN}";
    std::string_view rest(prefixes);
    while (!rest.empty()) {
      const std::string_view one = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      folders.push_back(one.starts_with(kOrigin)
                            ? fs::path(home.parent_path().string() + std::string(one.substr(kOrigin.size())))
                            : fs::path(one));
    }
  }
  folders.push_back(home.parent_path());
  folders.emplace_back();
  std::error_code unknown;
  folders.push_back(fs::canonical(home, unknown).parent_path());
  for (const fs::path& folder : folders) {
    if (is_there(folder / source)) return folder / source;
  }
  return {};
}

/// Searches external storage from the working folder.
fs::path find_storage(const fs::path& home, const std::string& name) {
  const fs::path source(name);
  if (std::getenv("HDF5_EXTFILE_PREFIX") != nullptr && !source.is_absolute())
    return find_source(home, name, "HDF5_EXTFILE_PREFIX");
  return is_there(source) ? source : fs::path();
}

/// True for a pattern of file or dataset names: %b stands for a number, %% for %.
bool is_numbered(std::string_view name) {
  for (std::size_t at = name.find('%'); at != std::string_view::npos; at = name.find('%', at + 2)) {
    if (name.substr(at, 2) == "%b") return true;
  }
  return false;
}
std::string with_number(std::string_view name, std::uint64_t number) {
  std::string text;
  for (std::size_t at = 0; at < name.size(); ++at) {
    const bool marked = name[at] == '%' && at + 1 < name.size();
    if (marked && name[at + 1] == 'b') {
      text += fmt::format("{}", number);
    } else {
      text += name[at];
    }
    if (marked && (name[at + 1] == 'b' || name[at + 1] == '%')) ++at;
  }
  return text;
}

template <class Read>
std::string text_of(const Read& read) {
  const ssize_t length = read(nullptr, 0);
  if (length < 0) return "";
  std::string text(static_cast<std::size_t>(length) + 1, '\0');
  read(text.data(), text.size());
  text.resize(static_cast<std::size_t>(length));
  return text;
}

/// The selection of a mapping of a virtual dataset, limited to an extent.
struct Selection {
  std::vector<hsize_t> start, stride, count, block;
  bool regular = false;
  std::optional<std::size_t> unlimited = {};  ///< the unlimited axis
  bool grows_by_blocks = false;               ///< growth along that axis; false: a single block becomes longer
};

Selection selection_of(const Hdf5Id& space, std::size_t rank, const std::vector<hsize_t>& extents) {
  Selection one{.start = std::vector<hsize_t>(rank, 0),
                .stride = std::vector<hsize_t>(rank, 1),
                .count = std::vector<hsize_t>(rank, 1),
                .block = extents};
  if (H5Sget_select_type(space.get()) == H5S_SEL_ALL) {
    one.regular = true;
    return one;
  }
  one.regular = H5Sget_select_type(space.get()) == H5S_SEL_HYPERSLABS && H5Sis_regular_hyperslab(space.get()) > 0 &&
                H5Sget_regular_hyperslab(space.get(), one.start.data(), one.stride.data(), one.count.data(),
                                         one.block.data()) >= 0;
  if (!one.regular) return one;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const hsize_t beyond = extents[axis] > one.start[axis] ? extents[axis] - one.start[axis] : 0;
    if (one.block[axis] == H5S_UNLIMITED) {
      one.unlimited = axis;
      one.block[axis] = beyond;
      one.count[axis] = beyond > 0 ? 1 : 0;
    }
    if (one.count[axis] == H5S_UNLIMITED) {
      one.unlimited = axis;
      one.grows_by_blocks = true;
      one.count[axis] = (beyond + one.stride[axis] - 1) / one.stride[axis];
    }
  }
  return one;
}

/// Minimum extents of a source that gives `wanted` points from an unlimited selection.
std::vector<hsize_t> least_extents(const Selection& from, hsize_t wanted) {
  const std::size_t along = from.unlimited.value_or(0);
  std::vector<hsize_t> least(from.start.size(), 1);
  hsize_t across = 1;
  for (std::size_t axis = 0; axis < least.size(); ++axis) {
    if (axis == along) continue;
    across *= from.count[axis] * from.block[axis];
    if (from.count[axis] > 0)
      least[axis] = from.start[axis] + (from.count[axis] - 1) * from.stride[axis] + from.block[axis];
  }
  const hsize_t needed = across > 0 ? (wanted + across - 1) / across : 0;
  if (needed == 0) return least;
  const hsize_t block = std::max<hsize_t>(1, from.block[along]);
  const hsize_t before = from.grows_by_blocks ? (needed - 1) / block : 0;  // whole blocks
  least[along] = from.start[along] + before * from.stride[along] + needed - before * block;
  return least;
}

std::vector<hsize_t> extents_of(hid_t space) {
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> extents(static_cast<std::size_t>(std::max(rank, 0)));
  if (rank > 0) H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  return extents;
}

hssize_t points(const Selection& one) {
  hssize_t all = 1;
  for (std::size_t axis = 0; axis < one.count.size(); ++axis)
    all *= static_cast<hssize_t>(one.count[axis] * one.block[axis]);
  return all;
}

struct Place {
  fs::path file;
  std::string dataset;
  bool operator<(const Place& other) const { return file != other.file ? file < other.file : dataset < other.dataset; }
};
/// Visits a dataset and the datasets that it is made of, each once.
struct Walk {
  std::set<Place> done;
  std::vector<Place> path;

  /// Returns false if the place was visited before. Throws FileError if a dataset contains itself.
  bool enter(Place place) {
    std::error_code unknown;
    place.file = fs::weakly_canonical(place.file, unknown);
    if (!place.dataset.starts_with('/')) place.dataset.insert(0, "/");
    const bool circle = std::ranges::any_of(path, [&](const Place& one) { return !(one < place) && !(place < one); });
    if (circle || path.size() >= kMaxChain) {
      throw FileError(
          {.file = path.front().file,
           .what = fmt::format("{} is a virtual dataset that is made of itself, so that nothing can be read "
                               "from it; make the file again",
                               path.front().dataset)});
    }
    path.push_back(place);
    return done.insert(place).second;
  }
  void leave() { path.pop_back(); }
};

std::string missing_text(const Hdf5Source& source, std::string_view dataset) {
  switch (source.kind) {
    case Hdf5Source::Kind::link:
      break;
    case Hdf5Source::Kind::storage:
      return fmt::format(
          "{} keeps its data in the external file {}, which is not there: the HDF5 library looks for it "
          "from the working folder, or from HDF5_EXTFILE_PREFIX",
          dataset, source.name);
    case Hdf5Source::Kind::virtual_part:
      return fmt::format(
          "{} is a virtual dataset that takes its data from {}, which is not there: put it where it was "
          "or beside this file",
          dataset, source.name);
  }
  return "";
}

}  // namespace

bool Hdf5File::Handles::is_in_this_file(const Hdf5Id& object, std::string_view name) const {
  H5O_info_t here, root;
#if H5_VERSION_GE(1, 12, 0)
  const bool known =
      H5Oget_info3(object.get(), &here, H5O_INFO_BASIC) >= 0 && H5Oget_info3(usable(), &root, H5O_INFO_BASIC) >= 0;
#elif H5_VERSION_GE(1, 10, 3)
  const bool known =
      H5Oget_info2(object.get(), &here, H5O_INFO_BASIC) >= 0 && H5Oget_info2(usable(), &root, H5O_INFO_BASIC) >= 0;
#else
  const bool known = H5Oget_info(object.get(), &here) >= 0 && H5Oget_info(usable(), &root) >= 0;
#endif
  if (!known) fail(fmt::format("see where dataset {} lies", name));
  return here.fileno == root.fileno;
}

fs::path Hdf5File::Handles::home_of(const Hdf5Id& object) const {
  const std::string name = text_of([&](char* text, std::size_t size) { return H5Fget_name(object.get(), text, size); });
  return name.empty() ? path : fs::path(name);
}

/// The raw files of external storage, in order.
std::vector<Hdf5Source> Hdf5File::Handles::storage_of(const Hdf5Id& dataset, const Hdf5Id& properties,
                                                      std::string_view name) const {
  constexpr std::size_t kMaxName = 4096;
  std::vector<Hdf5Source> found;
  const Hdf5Id type(H5Dget_type(dataset.get()), H5Tclose);
  std::uint64_t left = H5Tget_size(type.get());
  for (const hsize_t extent : extents(dataset, name).now) left *= extent;
  const int count = H5Pget_external_count(properties.get());
  for (int i = 0; i < count && left > 0; ++i) {
    std::string text(kMaxName, '\0');
    off_t offset = 0;
    hsize_t size = 0;
    if (H5Pget_external(properties.get(), static_cast<unsigned>(i), kMaxName - 1, text.data(), &offset, &size) < 0) {
      fail(fmt::format("read the layout of dataset {}", name));
    }
    text.resize(text.find('\0'));
    const std::uint64_t part = std::min<std::uint64_t>(size, left);
    left -= part;
    found.push_back({.kind = Hdf5Source::Kind::storage,
                     .name = text,
                     .file = find_storage(home_of(dataset), text),
                     .bytes = static_cast<std::uint64_t>(offset) + part});
  }
  return found;
}

/// The sources of one mapping of a virtual dataset with these extents: one, or one for each number in its name.
std::vector<Hdf5Source> Hdf5File::Handles::virtual_parts(const Hdf5Id& properties, std::size_t index,
                                                         const std::vector<hsize_t>& now,
                                                         const std::filesystem::path& home) const {
  const std::string in_file = text_of(
      [&](char* text, std::size_t size) { return H5Pget_virtual_filename(properties.get(), index, text, size); });
  const std::string source = text_of(
      [&](char* text, std::size_t size) { return H5Pget_virtual_dsetname(properties.get(), index, text, size); });
  const Hdf5Id here(H5Pget_virtual_vspace(properties.get(), index), H5Sclose);
  const Hdf5Id there(H5Pget_virtual_srcspace(properties.get(), index), H5Sclose);
  if (!here.valid() || !there.valid() || now.empty()) fail("read the layout of a virtual dataset");
  const Selection target = selection_of(here, now.size(), now);
  Hdf5Source part{.kind = Hdf5Source::Kind::virtual_part};
  if (target.regular) {
    const hsize_t before = target.count[0] > 0 ? (target.count[0] - 1) * target.stride[0] + target.block[0] : 1;
    part.rows = rows_text(target.start[0], target.start[0] + std::max<hsize_t>(before, 1) - 1);
  }
  const std::vector<hsize_t> source_extents = extents_of(there.get());
  std::vector<hsize_t> start(source_extents.size()), end(source_extents.size());
  const hssize_t wanted = target.regular ? points(target) : H5Sget_select_npoints(here.get());
  if (H5Sget_select_type(there.get()) == H5S_SEL_ALL) {
    part.elements = static_cast<hsize_t>(wanted);  // its extents are not in this file
  } else if (const Selection from = selection_of(there, source_extents.size(), source_extents);
             target.regular && from.regular && from.unlimited) {
    part.least = least_extents(from, static_cast<hsize_t>(wanted));  // the part that this dataset shows
  } else if (H5Sget_select_bounds(there.get(), start.data(), end.data()) >= 0) {
    for (const hsize_t one : end) part.least.push_back(one + 1);
  }
  std::vector<Hdf5Source> found;
  const auto add = [&](Hdf5Source one, const std::string& file_name, const std::string& dataset_name) {
    one.name = file_name;
    one.file = file_name == "." ? home : find_source(home, file_name, "HDF5_VDS_PREFIX");
    one.dataset = dataset_name;
    found.push_back(std::move(one));
  };
  const bool numbered = target.unlimited && target.grows_by_blocks && (is_numbered(in_file) || is_numbered(source));
  if (!numbered) {
    add(part, in_file, source);
    return found;
  }
  const std::size_t along = *target.unlimited;
  for (std::uint64_t number = 0; number < std::min<std::uint64_t>(target.count[along], kMaxNumbered); ++number) {
    Hdf5Source one = part;
    const hsize_t first = target.start[0] + number * target.stride[0];
    if (along == 0) one.rows = rows_text(first, first + target.block[0] - 1);
    add(std::move(one), with_number(in_file, number), with_number(source, number));
  }
  return found;
}

std::vector<Hdf5Source> Hdf5File::Handles::sources(const Hdf5Id& dataset, std::string_view name) const {
  const fs::path home = home_of(dataset);
  if (!is_in_this_file(dataset, name)) {  // the other file lists its own sources
    const std::string there =
        text_of([&](char* text, std::size_t size) { return H5Iget_name(dataset.get(), text, size); });
    return {{.kind = Hdf5Source::Kind::link, .name = home.string(), .file = home, .dataset = there}};
  }
  const Hdf5Id properties(H5Dget_create_plist(dataset.get()), H5Pclose);
  if (!properties.valid()) fail(fmt::format("read the layout of dataset {}", name));
  std::vector<Hdf5Source> found = storage_of(dataset, properties, name);
  if (H5Pget_layout(properties.get()) != H5D_VIRTUAL) return found;
  const std::vector<hsize_t> now = extents(dataset, name).now;
  std::size_t count = 0;
  if (H5Pget_virtual_count(properties.get(), &count) < 0) fail(fmt::format("read the layout of dataset {}", name));
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<Hdf5Source> parts = virtual_parts(properties, i, now, home);
    found.insert(found.end(), std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end()));
  }
  return found;
}

std::string Hdf5File::Handles::rows_without_source(const Hdf5Id& dataset, const Hdf5Id& properties,
                                                   std::string_view name) const {
  const std::vector<hsize_t> now = extents(dataset, name).now;
  if (now.empty()) return "";
  const Hdf5Id left(H5Screate_simple(static_cast<int>(now.size()), now.data(), nullptr), H5Sclose);
  const std::vector<hsize_t> zero(now.size(), 0);
  H5Sselect_hyperslab(left.get(), H5S_SELECT_SET, zero.data(), nullptr, now.data(), nullptr);
  const hssize_t all = H5Sget_select_npoints(left.get());
  std::size_t count = 0;
  if (H5Pget_virtual_count(properties.get(), &count) < 0) fail(fmt::format("read the layout of dataset {}", name));
  for (std::size_t i = 0; i < count; ++i) {
    const Hdf5Id here(H5Pget_virtual_vspace(properties.get(), i), H5Sclose);
    const Selection target = selection_of(here, now.size(), now);
    if (target.regular && points(target) > 0) {
      H5Sselect_hyperslab(left.get(), H5S_SELECT_NOTB, target.start.data(), target.stride.data(), target.count.data(),
                          target.block.data());
    } else if (!target.regular) {
      const hssize_t blocks = H5Sget_select_hyper_nblocks(here.get());
      if (blocks < 1) continue;
      std::vector<hsize_t> corners(static_cast<std::size_t>(blocks) * 2 * now.size());
      H5Sget_select_hyper_blocklist(here.get(), 0, static_cast<hsize_t>(blocks), corners.data());
      for (auto corner = corners.begin(); corner != corners.end();) {
        const std::vector<hsize_t> start(corner, corner + static_cast<std::ptrdiff_t>(now.size()));
        corner += static_cast<std::ptrdiff_t>(now.size());
        std::vector<hsize_t> block(corner, corner + static_cast<std::ptrdiff_t>(now.size()));
        corner += static_cast<std::ptrdiff_t>(now.size());
        for (std::size_t axis = 0; axis < now.size(); ++axis) block[axis] -= start[axis] - 1;
        const std::vector<hsize_t> one(now.size(), 1);
        H5Sselect_hyperslab(left.get(), H5S_SELECT_NOTB, start.data(), nullptr, one.data(), block.data());
      }
    }
  }
  const hssize_t missing = H5Sget_select_npoints(left.get());
  if (missing <= 0) return "";
  std::vector<hsize_t> start(now.size()), end(now.size());
  H5Sget_select_bounds(left.get(), start.data(), end.data());
  return fmt::format("{} of its {} elements come from nowhere, as no source is named for them: within {}", missing, all,
                     rows_text(start[0], end[0]));
}

std::string Hdf5File::Handles::missing_chunks(const Hdf5Id& dataset, const Hdf5Id& properties, std::string_view name,
                                              const std::function<void()>& alive) const {
  const Extents extent = extents(dataset, name);
  const std::vector<hsize_t> chunk = chunk_shape(properties, extent, name);
  std::vector<hsize_t> grid(chunk.size());
  std::uint64_t wanted = 1;
  for (std::size_t axis = 0; axis < chunk.size(); ++axis) {
    grid[axis] = (extent.now[axis] + chunk[axis] - 1) / chunk[axis];
    wanted *= grid[axis];
  }
  if (wanted == 0) return "";
  std::uint64_t stored = 0;
  if (wanted <= kMaxCounted) {
    hsize_t chunks = 0;
    const Hdf5Id space(H5Dget_space(dataset.get()), H5Sclose);
    if (!space.valid() || H5Dget_num_chunks(dataset.get(), space.get(), &chunks) < 0) {
      fail(fmt::format("read the index of the chunks of dataset {}", name));
    }
    if (chunks >= wanted) return "";
    stored = chunks;
  }
  // Searches the chunks one by one for the missing ones.
  std::uint64_t missing = 0, walked = 0;
  hsize_t first = 0, last = 0;
  std::vector<hsize_t> at(grid.size(), 0), place(grid.size());
  for (; walked < wanted && (missing == 0 || walked < kMaxWalked); ++walked) {
    for (std::size_t axis = 0; axis < at.size(); ++axis) place[axis] = at[axis] * chunk[axis];
    hsize_t bytes = 0;
    const bool answered = H5Dget_chunk_storage_size(dataset.get(), place.data(), &bytes) >= 0;
    if (!answered && innermost_error().reason.find("not allocated") == std::string::npos) {
      fail(fmt::format("read the index of the chunks of dataset {}", name));
    }
    if (!answered || bytes == 0) {
      if (missing++ == 0) first = place[0];
      last = std::min(place[0] + chunk[0], extent.now[0]) - 1;
    }
    for (std::size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < grid[axis]) break;
      at[axis] = 0;
    }
    constexpr std::uint64_t kEvery = 4096;
    if (walked % kEvery == 0) alive();
  }
  if (wanted <= kMaxCounted) missing = wanted - stored;
  if (missing == 0) return "";
  return fmt::format("{}{} of its {} chunks were never written, within {} of {}", walked < wanted ? "at least " : "",
                     missing, wanted, rows_text(first, last), extent.now[0]);
}

std::vector<fs::path> Hdf5File::other_files(std::string_view dataset, bool accept_missing) const {
  std::set<fs::path> files;
  Walk walk;
  const std::function<void(const Hdf5File&, const std::string&)> visit = [&](const Hdf5File& file,
                                                                             const std::string& name) {
    if (walk.enter({file.path(), name})) {
      const std::vector<Hdf5Source> sources = [&] {
        const Hdf5Lock lock;
        return file.handles_->sources(file.handles_->open_dataset(name), name);
      }();
      for (const Hdf5Source& source : sources) {
        if (source.file.empty()) {
          if (accept_missing) continue;
          throw FileError({.file = file.path(), .what = missing_text(source, name)});
        }
        if (source.file != path()) files.insert(source.file);
        if (source.kind == Hdf5Source::Kind::storage) continue;
        const Hdf5File other(source.file, Access::read);
        if (other.has(source.dataset)) visit(other, source.dataset);
      }
    }
    walk.leave();
  };
  visit(*this, std::string(dataset));
  return {files.begin(), files.end()};
}

std::string Hdf5File::unwritten(std::string_view dataset, const std::function<void()>& alive) const {
  Walk walk;
  const std::function<std::string(const Hdf5File&, const std::string&)> visit =
      [&](const Hdf5File& file, const std::string& name) -> std::string {
    std::string text;
    if (walk.enter({file.path(), name})) text = file.unwritten_here(name, alive, visit);
    walk.leave();
    return text;
  };
  return visit(*this, std::string(dataset));
}

std::string Hdf5File::unwritten_here(const std::string& name, const std::function<void()>& alive,
                                     const VisitDataset& visit) const {
  std::vector<Hdf5Source> sources;
  {
    const Hdf5Lock lock;
    const Hdf5Id id = handles_->open_dataset(name);
    sources = handles_->sources(id, name);
    const Hdf5Id properties(H5Dget_create_plist(id.get()), H5Pclose);
    if (!properties.valid()) handles_->fail(fmt::format("read the layout of dataset {}", name));
    const bool behind_link = !sources.empty() && sources.front().kind == Hdf5Source::Kind::link;
    if (!behind_link) {
      hsize_t elements = 1;
      for (const hsize_t extent : handles_->extents(id, name).now) elements *= extent;
      if (elements == 0) return "";
      const H5D_layout_t layout = H5Pget_layout(properties.get());
      if (layout == H5D_CONTIGUOUS && sources.empty() && H5Dget_storage_size(id.get()) == 0) {
        return "nothing of it was ever written";
      }
      if (layout == H5D_CHUNKED) return handles_->missing_chunks(id, properties, name, alive);
      if (layout == H5D_VIRTUAL) {
        std::string text = handles_->rows_without_source(id, properties, name);
        if (!text.empty()) return text;
      }
    }
  }
  for (const Hdf5Source& source : sources) {
    alive();
    if (source.file.empty()) return missing_text(source, name);
    if (source.kind == Hdf5Source::Kind::storage) {
      std::error_code unknown;
      const std::uintmax_t bytes = fs::file_size(source.file, unknown);
      if (!unknown && bytes >= source.bytes) continue;
      return fmt::format("its external file {} has {} bytes where it needs {}: {} bytes are missing at its end",
                         source.file.string(), unknown ? 0 : bytes, source.bytes, source.bytes - (unknown ? 0 : bytes));
    }
    const std::string rows = source.rows.empty() ? "its data" : source.rows;
    const std::string place = fmt::format("{}:{}", source.name, source.dataset);
    const Hdf5File other(source.file, Access::read);
    if (!other.has(source.dataset)) {
      return fmt::format("{} come from {}, and that file holds no such dataset", rows, place);
    }
    const std::vector<std::int64_t> shape = other.layout(source.dataset).shape;
    const auto elements =
        std::accumulate(shape.begin(), shape.end(), hsize_t{1},
                        [](hsize_t product, std::int64_t extent) { return product * static_cast<hsize_t>(extent); });
    if (elements < source.elements) {
      return fmt::format("{} come from {}, which has the shape ({}) where {} numbers are needed", rows, place,
                         fmt::join(shape, ", "), source.elements);
    }
    for (std::size_t axis = 0; axis < std::min(shape.size(), source.least.size()); ++axis) {
      if (static_cast<hsize_t>(shape[axis]) >= source.least[axis]) continue;
      return fmt::format("{} come from {}, which has the shape ({}) where at least ({}) is needed", rows, place,
                         fmt::join(shape, ", "), fmt::join(source.least, ", "));
    }
    if (const std::string text = visit(other, source.dataset); !text.empty()) {
      return fmt::format("{} come from {}: {}", rows, place, text);
    }
  }
  return "";
}

std::string Hdf5File::dangling(std::string_view object) const {
  const Hdf5Lock lock;
  const hid_t file = handles_->usable();
  std::string whole = fmt::format("{}{}", object.starts_with('/') ? "" : "/", object);
  for (std::size_t end = whole.find('/', 1);; end = whole.find('/', end + 1)) {
    const std::string prefix = whole.substr(0, end);
    H5L_info_t link;
    if (H5Lexists(file, prefix.c_str(), H5P_DEFAULT) <= 0 ||
        H5Lget_info(file, prefix.c_str(), &link, H5P_DEFAULT) < 0) {
      return "";
    }
    if (link.type != H5L_TYPE_HARD && H5Oexists_by_name(file, prefix.c_str(), H5P_DEFAULT) <= 0) {
      std::vector<char> value(link.u.val_size + 1, '\0');
      if (H5Lget_val(file, prefix.c_str(), value.data(), link.u.val_size, H5P_DEFAULT) < 0) return "";
      if (link.type == H5L_TYPE_SOFT) return fmt::format("is a link to {}, which is not there", value.data());
      const char *target = nullptr, *there = nullptr;
      unsigned flags = 0;
      if (link.type != H5L_TYPE_EXTERNAL ||
          H5Lunpack_elink_val(value.data(), link.u.val_size, &flags, &target, &there) < 0) {
        return "is a link of a kind that the HDF5 library here does not know";
      }
      const bool found = !find_source(handles_->path, target, "HDF5_EXT_PREFIX").empty();
      return found ? fmt::format("is a link to {} in the file {}, which holds no such object", there, target)
                   : fmt::format("is a link to {} in the file {}, which is not there: put it beside this one", there,
                                 target);
    }
    if (end == std::string::npos) return "";
  }
}

}  // namespace lockstep::io
