#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/formats/image_file.hpp"
#include "io/formats/image_listing.hpp"
#include "io/formats/image_scale.hpp"
#include "io/io_test_support.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::filesystem::path kImages = kFixtures / "images";

/// The colours that fixtures/make_images.py drew.
double drawn(std::int64_t y, std::int64_t x, std::int64_t colour) {
  return colour == 0 ? static_cast<double>(10 * x + 5) : colour == 1 ? static_cast<double>(15 * y) : 100;
}

/// Returns true, and checks the messages, if this program was built without the libraries.
bool built_without() {
  if (can_decode_images()) return false;
  EXPECT_THAT(error_text<FileError>([] { read_image(kImages / "rgb.png"); }), HasSubstr("built without libjpeg"));
  EXPECT_THAT(error_text<FileError>([] { open_image_folder(kImages, {}); }), HasSubstr("built without libjpeg"));
  return true;
}

Image made(std::int64_t height, std::int64_t width, const std::function<double(std::int64_t, std::int64_t)>& value) {
  Image image{.height = height, .width = width, .pixels = {}};
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x)
      image.pixels.insert(image.pixels.end(), 3, static_cast<std::uint8_t>(value(y, x)));
  }
  return image;
}

TEST(ReadImageTest, EveryFormBecomesRgb) {
  if (built_without()) return;
  struct Case {
    const char* file;
    bool grey;
    double tolerance;
  };
  for (const auto& [file, grey, tolerance] :
       {Case{"rgb.png", false, 0}, Case{"palette.png", false, 0}, Case{"alpha.png", false, 0},
        Case{"grey.png", true, 0}, Case{"grey_alpha.png", true, 0}, Case{"gamma.png", true, 0},
        Case{"rgb.jpg", false, 6}, Case{"progressive.jpg", false, 6}, Case{"grey.jpg", true, 4},
        Case{"cmyk.jpg", false, 6}}) {
    const Image image = read_image(kImages / file);
    ASSERT_EQ(image.height, 12) << file;
    ASSERT_EQ(image.width, 16) << file;
    ASSERT_EQ(image.pixels.size(), 12U * 16 * 3) << file;
    for (std::int64_t i = 0; i < 12 * 16 * 3; ++i) {
      const std::int64_t x = i / 3 % 16, y = i / 48, colour = i % 3;
      ASSERT_NEAR(image.pixels[static_cast<std::size_t>(i)], drawn(y, x, grey ? 0 : colour), tolerance)
          << file << " row " << y << " column " << x << " colour " << colour;
    }
  }
}

TEST(ReadImageTest, DepthIsKept) {
  if (built_without()) return;
  const Image grey = read_image(kImages / "grey16.png");
  ASSERT_TRUE(grey.is_deep());
  ASSERT_EQ(grey.deep.size(), 12U * 16 * 3);
  EXPECT_TRUE(grey.pixels.empty());
  for (std::size_t i = 0; i < grey.deep.size(); ++i) EXPECT_EQ(grey.deep[i], (10 * (i / 3 % 16) + 5) * 257);
  const Image narrow = read_image(kImages / "grey12.png");  // 12 bits in 16, with a gamma to be ignored
  for (std::size_t i = 0; i < narrow.deep.size(); ++i) EXPECT_EQ(narrow.deep[i], 16 * (10 * (i / 3 % 16) + 5) + i / 48);
  const Image small = scale(grey, {.height = 12, .width = 16}, 6, 8);
  EXPECT_NEAR(small.deep[3 * 3], 257 * (10 * 6.5 + 5), 257);
}

TEST(ReadImageTest, ImagesAreUpright) {
  if (built_without()) return;
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string name = fmt::format("orientation_{}.png", orientation);
    const Image image = read_image(kImages / name);
    ASSERT_EQ(image.height, 12) << name;
    ASSERT_EQ(image.width, 16) << name;
    EXPECT_EQ(image.turned, orientation > 1);
    for (std::int64_t i = 0; i < 12 * 16 * 3; ++i) {
      ASSERT_EQ(image.pixels[static_cast<std::size_t>(i)], drawn(i / 48, i / 3 % 16, i % 3)) << name << " " << i;
    }
  }
  const Image jpeg = read_image(kImages / "orientation_6.jpg");
  ASSERT_EQ(jpeg.height, 12);
  for (std::int64_t i = 0; i < 12 * 16 * 3; ++i) {
    ASSERT_NEAR(jpeg.pixels[static_cast<std::size_t>(i)], drawn(i / 48, i / 3 % 16, i % 3), 8);
  }
}

TEST(ReadImageTest, DamagedOrientationsAreNone) {
  const auto block = [](std::string text) {
    return exif_orientation({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  };
  const std::string entry = std::string("\x12\x01\x03\0\x01\0\0\0\x06\0\0\0", 12);
  const std::string head = std::string("II*\0\x08\0\0\0\x01\0", 10);
  EXPECT_EQ(block(head + entry), 6);
  for (std::size_t left = 0; left < head.size() + entry.size(); ++left)
    EXPECT_EQ(block((head + entry).substr(0, left)), 1);
  EXPECT_EQ(block(std::string("II*\0\xFF\xFF\xFF\xFF\x01\0", 10) + entry), 1) << "a directory beyond the end";
  EXPECT_EQ(block(std::string("II*\0\x08\0\0\0\xFF\xFF", 10) + std::string(24, 'x')), 1) << "too many entries";
  EXPECT_EQ(block(head + std::string("\x12\x01\x03\0\x01\0\0\0\x09\0\0\0", 12)), 1) << "9";
  EXPECT_EQ(block(std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0", 22)), 8);
}

TEST(ReadImageTest, WebP) {
  if (!can_decode("WebP")) {
    EXPECT_THAT(error_text<FileError>([] { read_image(kImages / "lossless.webp"); }),
                AllOf(HasSubstr("is a WebP image"), HasSubstr("built without libwebp")));
    return;
  }
  for (const char* file : {"lossless.webp", "orientation_8.webp"}) {
    const Image image = read_image(kImages / file);
    ASSERT_EQ(image.height, 12) << file;
    for (std::int64_t i = 0; i < 12 * 16 * 3; ++i) {
      ASSERT_EQ(image.pixels[static_cast<std::size_t>(i)], drawn(i / 48, i / 3 % 16, i % 3)) << file << " " << i;
    }
  }
  const TemporaryFolder folder;
  const std::string whole = read_text(kImages / "lossless.webp");
  write_text(folder.path() / "cut.webp", whole.substr(0, whole.size() / 2));
  EXPECT_THAT(error_text<FileError>([&] { read_image(folder.path() / "cut.webp"); }),
              HasSubstr("cut.webp: is damaged"));
  EXPECT_THAT(error_text<FileError>([&] { read_image(kImages / "animation.webp"); }), HasSubstr("several images"));
}

TEST(ReadImageTest, DamageIsNamed) {
  if (built_without()) return;
  const TemporaryFolder folder;
  const auto told = [&](const std::string& name, std::string bytes) {
    write_text(folder.path() / name, bytes);
    return error_text<FileError>([&] { read_image(folder.path() / name); });
  };
  for (const char* file : {"rgb.png", "palette.png", "grey16.png", "rgb.jpg", "progressive.jpg", "cmyk.jpg"}) {
    const std::string whole = read_text(kImages / file);
    for (const std::size_t left : {whole.size() / 2, whole.size() - 16, std::size_t{20}}) {
      EXPECT_THAT(told(file, whole.substr(0, left)), AllOf(HasSubstr(file), HasSubstr("damaged"))) << left;
    }
  }
  std::string png = read_text(kImages / "palette.png");
  png[png.size() / 2] ^= 0x10;
  EXPECT_THAT(told("flipped.png", png), HasSubstr("flipped.png: is damaged"));
  std::string huge = read_text(kImages / "rgb.jpg");
  const std::size_t frame = huge.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  for (std::size_t i = 5; i < 9; ++i) huge[frame + i] = '\xF0';  // 61680 x 61680
  EXPECT_THAT(told("huge.jpg", huge), HasSubstr("huge.jpg: is damaged"));
  std::string deep = read_text(kImages / "grey.jpg");
  deep[deep.find("\xFF\xC0") + 4] = 12;
  EXPECT_THAT(told("deep.jpg", deep),
              HasSubstr("is a JPEG image of 12 bits a channel, which libjpeg here does not read"));
  EXPECT_THAT(told("text.jpg", "no picture"), HasSubstr("is no image of a known format"));
  EXPECT_THAT(told("empty.png", ""), HasSubstr("no image"));
  EXPECT_THAT(told("other.jpg", "GIF89a and so on"), HasSubstr("is a GIF image, which this program does not read"));
  EXPECT_THAT(error_text<FileError>([&] { read_image(folder.path() / "none.png"); }), HasSubstr("none.png"));
}

TEST(ScaleTest, TheSameSizeIsTheSameImage) {
  const Image image = made(9, 7, [](std::int64_t y, std::int64_t x) { return (y * 37 + x * 91) % 256; });
  const Image same = scale(image, {.height = 9, .width = 7}, 9, 7);
  EXPECT_EQ(same.pixels, image.pixels);
}

TEST(ScaleTest, SlopesStaySlopes) {
  const Image image = made(48, 60, [](std::int64_t y, std::int64_t x) { return 2 * y + 2 * x; });
  for (const auto& [height, width] : {std::pair{12, 15}, std::pair{24, 20}, std::pair{96, 120}}) {
    const Image small = scale(image, {.height = 48, .width = 60}, height, width);
    const double dy = 48.0 / height, dx = 60.0 / width;
    for (int y = 3; y < height - 3; ++y) {  // the kernel is cut off at the borders
      for (int x = 3; x < width - 3; ++x) {
        const double expected = 2 * ((y + 0.5) * dy - 0.5) + 2 * ((x + 0.5) * dx - 0.5);
        ASSERT_NEAR(small.pixels[static_cast<std::size_t>((y * width + x) * 3)], expected, 0.51 + (dy + dx) * 0.02);
      }
    }
  }
}

TEST(ScaleTest, FinePatternsBecomeTheirMean) {
  const Image image = made(64, 64, [](std::int64_t y, std::int64_t x) { return (x + y) % 2 == 0 ? 255 : 0; });
  for (const std::uint8_t pixel : scale(image, {.height = 64, .width = 64}, 8, 8).pixels) EXPECT_NEAR(pixel, 127.5, 8);
}

TEST(ScaleTest, SharpEdgesStayInRange) {
  const Image image = made(8, 8, [](std::int64_t, std::int64_t x) { return x < 4 ? 0 : 255; });
  const Image large = scale(image, {.height = 8, .width = 8}, 8, 80);
  EXPECT_EQ(large.pixels.front(), 0);
  EXPECT_EQ(large.pixels.back(), 255);
}

TEST(ScaleTest, TheCentreIsInTheMiddle) {
  const Image wide = made(10, 30, [](std::int64_t, std::int64_t x) { return x >= 10 && x < 20 ? 200 : 10; });
  const ImageRegion region = centre_region(wide, 10, 10);
  EXPECT_EQ(region.left, 10);
  EXPECT_EQ(region.top, 0);
  EXPECT_EQ(region.width, 10);
  for (const std::uint8_t pixel : scale(wide, region, 10, 10).pixels) EXPECT_EQ(pixel, 200);
  const ImageRegion tall = centre_region(made(31, 10, [](auto, auto) { return 0; }), 20, 20);
  EXPECT_EQ(tall.top, 10.5);
  EXPECT_EQ(tall.height, 10);
}

class ImageFolderTest : public testing::Test {
 protected:
  void copy(const char* file, const std::string& to) {
    const auto target = folder_.path() / to;
    std::filesystem::create_directories(target.parent_path());
    std::filesystem::copy_file(kImages / file, target);
  }
  struct Samples {
    std::vector<std::uint8_t> x, y;
    std::string names = {};
  };
  static Samples read(SampleSource& source, std::int64_t count) {
    const std::size_t bytes = source.fields()[0].bytes();
    Samples samples{std::vector<std::uint8_t>(static_cast<std::size_t>(count) * bytes),
                    std::vector<std::uint8_t>(static_cast<std::size_t>(count)),
                    std::string(static_cast<std::size_t>(count * source.sample_id().value().bytes), '?')};
    const std::span<std::byte> buffers[] = {
        std::as_writable_bytes(std::span(samples.x)), std::as_writable_bytes(std::span(samples.y)),
        std::as_writable_bytes(std::span(samples.names.data(), samples.names.size()))};
    source.read(count, buffers);
    return samples;
  }
  TemporaryFolder folder_;
};

TEST_F(ImageFolderTest, ClassesAndFilesInTheOrderOfTheirNames) {
  if (built_without()) return;
  copy("rgb.png", "dog/b.PNG");
  copy("grey.png", "dog/a.png");
  copy("rgb.png", "cat/z.jpg");  // a PNG under another name
  write_text(folder_.path() / "dog/notes.txt", "no picture");
  write_text(folder_.path() / "README", "no folder");
  std::filesystem::create_directories(folder_.path() / ".cache");
  std::filesystem::create_directories(folder_.path() / "emu");
  for (const int threads : {1, 5}) {
    const auto source = open_image_folder(folder_.path(), {.threads = threads});
    EXPECT_EQ(source->count(), 3);
    EXPECT_EQ(source->fields()[0].sample_shape, (std::vector<std::int64_t>{12, 16, 3}));
    EXPECT_THAT(source->class_names(), ElementsAre("cat", "dog", "emu"));
    EXPECT_TRUE(source->labels_are_classes());
    const Samples samples = read(*source, 3);
    EXPECT_THAT(samples.y, ElementsAre(0, 1, 1));
    EXPECT_EQ(samples.names, "cat/z.jpgdog/a.pngdog/b.PNG");
    EXPECT_EQ(samples.x[1], 0) << "cat/z.jpg: green of the first row";
    EXPECT_EQ(samples.x[576 + 1], 5) << "dog/a.png is grey";
    EXPECT_EQ(samples.x[2 * 576 + 2], 100) << "dog/b.PNG: blue";
    EXPECT_THROW(read(*source, 1), std::invalid_argument);
  }
}

TEST_F(ImageFolderTest, NothingIsLeftOutInSilence) {
  if (built_without()) return;
  copy("rgb.png", "cat/2019/spring/a.png");
  copy("rgb.png", "cat/b.JFIF");
  copy("rgb.png", "dog/untitled");  // no ending: its content decides
  copy("rgb.png", "dog/._a.png");
  write_text(folder_.path() / "dog/._b.png", "macOS");
  write_text(folder_.path() / "dog/.DS_Store", "macOS");
  copy("rgb.png", "__MACOSX/dog/a.png");
  write_text(folder_.path() / "dog/c.bmp", "BM");
  std::filesystem::create_directories(folder_.path() / "dog/deep");
  write_text(folder_.path() / "dog/deep/d.bmp", "BM");
  write_text(folder_.path() / "dog/e.gif", "GIF89a");
  write_text(folder_.path() / "dog/notes.txt", "text");
  write_text(folder_.path() / "labels.csv", "text");
  copy("rgb.png", "stray.png");
  std::filesystem::create_directories(folder_.path() / "emu");
  std::filesystem::create_symlink("nowhere", folder_.path() / "dog/gone.png");
  const auto source = open_image_folder(folder_.path(), {});
  EXPECT_EQ(source->count(), 3);
  EXPECT_THAT(read(*source, 3).y, ElementsAre(0, 0, 1));
  EXPECT_THAT(
      source->remarks(),
      testing::UnorderedElementsAre(
          AllOf(HasSubstr("left out: 2 BMP images, which this program does not read"), HasSubstr("/dog/")),
          HasSubstr("left out: 1 GIF image"), AllOf(HasSubstr("1 file without an image"), HasSubstr("notes.txt")),
          AllOf(HasSubstr("1 file without an image"), HasSubstr("labels.csv")),
          AllOf(HasSubstr("1 image beside the folders of the classes"), HasSubstr("stray.png")),
          AllOf(HasSubstr("1 dead link"), HasSubstr("gone.png")), HasSubstr("classes without any image: emu")));
  std::filesystem::create_directory_symlink("..", folder_.path() / "dog/again");
  EXPECT_THAT(error_text<FileError>([&] { open_image_folder(folder_.path(), {}); }),
              AllOf(HasSubstr("dog/again"), HasSubstr("a link to a folder above it")));
}

TEST_F(ImageFolderTest, DepthAndOrientationAreSaidOnce) {
  if (built_without()) return;
  copy("grey16.png", "a/1.png");
  copy("grey12.png", "b/1.png");
  const auto deep = open_image_folder(folder_.path(), {});
  EXPECT_EQ(deep->fields()[0], (Field{"x", FileType::uint16, {12, 16, 1}}));
  EXPECT_THAT(deep->remarks(), ElementsAre(HasSubstr("more than 8 bits a channel")));
  const Samples samples = read(*deep, 2);
  std::vector<std::uint16_t> values(samples.x.size() / 2);
  std::memcpy(values.data(), samples.x.data(), samples.x.size());
  EXPECT_EQ(values[3], 35 * 257);
  EXPECT_EQ(values[192 + 16 + 3], 16 * 35 + 1);
  copy("grey.png", "b/2.png");
  const auto mixed = open_image_folder(folder_.path(), {});
  EXPECT_THAT(error_text<FileError>([&] { read(*mixed, 3); }),
              AllOf(HasSubstr("b/2.png: has only 8 bits a channel"), HasSubstr("a/1.png")));
}

TEST_F(ImageFolderTest, TurnedImagesAreSaidOnce) {
  if (built_without()) return;
  copy("rgb.png", "a/1.png");
  copy("orientation_6.png", "a/2.png");
  copy("orientation_3.png", "b/1.png");
  const auto source = open_image_folder(folder_.path(), {});
  EXPECT_THAT(source->remarks(), ElementsAre(AllOf(HasSubstr("turned upright"), HasSubstr("2 of 3"))));
  const Samples samples = read(*source, 3);
  EXPECT_TRUE(std::equal(samples.x.begin(), samples.x.begin() + 576, samples.x.begin() + 576));
  EXPECT_TRUE(std::equal(samples.x.begin(), samples.x.begin() + 576, samples.x.begin() + 2 * 576));
}

TEST_F(ImageFolderTest, SplitsThatOthersMadeAreRecognised) {
  const auto parts = [&] {
    std::string text;
    for (const ImagePart& part : image_parts(folder_.path())) {
      text += part.name + "=" + part.folder.filename().string() + " ";
    }
    return text;
  };
  const auto make = [&](const char* name) { std::filesystem::create_directories(folder_.path() / name); };
  make("train/cat");
  EXPECT_EQ(parts(), "") << "there is nothing beside it";
  make("Val/cat");
  make("test/cat");
  EXPECT_EQ(parts(), "train=train validation=Val test=test ");
  make("bus");
  EXPECT_EQ(parts(), "") << "means of transport";
  std::filesystem::remove(folder_.path() / "bus");
  std::filesystem::remove(folder_.path() / "test/cat");
  EXPECT_EQ(parts(), "") << "no classes in one of them";
}

TEST_F(ImageFolderTest, ManyImagesByManyThreadsStayInOrder) {
  if (built_without()) return;
  for (int i = 0; i < 60; ++i) copy(i % 3 == 0 ? "grey.png" : "rgb.png", fmt::format("c/{:03}.png", i));
  const auto source = open_image_folder(folder_.path(), {.threads = 3});
  const auto is_grey = [](const Samples& samples, std::size_t i) { return samples.x[i * 576 + 2] == 5; };
  const Samples first = read(*source, 7);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(is_grey(first, i), i % 3 == 0);
  source->skip(10);
  const Samples rest = read(*source, 43);
  for (std::size_t i = 0; i < 43; ++i) EXPECT_EQ(is_grey(rest, i), (i + 17) % 3 == 0);
}

TEST_F(ImageFolderTest, SizesByCropOrByForce) {
  if (built_without()) return;
  copy("rgb.png", "a/x.png");
  const auto cropped = open_image_folder(folder_.path(), {.height = 6, .width = 6});
  const Samples centre = read(*cropped, 1);
  EXPECT_NEAR(centre.x[0], 10 * 2.5 + 5, 2) << "columns 2 and 3 of 16";
  EXPECT_NEAR(centre.x[5 * 3], 10 * 12.5 + 5, 2);
  const auto exact = open_image_folder(folder_.path(), {.height = 6, .width = 6, .crop = false});
  EXPECT_NEAR(read(*exact, 1).x[5 * 3], 10 * 14.2 + 5, 4);
}

TEST_F(ImageFolderTest, WhatIsWrongIsSaid) {
  if (built_without()) return;
  EXPECT_THAT(error_text<FileError>([&] { open_image_folder(folder_.path(), {}); }), HasSubstr("no images"));
  EXPECT_THAT(error_text<FileError>([&] { open_image_folder(folder_.path() / "none", {}); }), HasSubstr("no folder"));
  EXPECT_THROW(open_image_folder(folder_.path(), {.height = 5}), std::invalid_argument);
  copy("rgb.png", "a/1.png");
  const Image small = read_image(kImages / "rgb.png");
  const std::string png = read_text(kImages / "rgb.png");
  write_text(folder_.path() / "a/2.png", png.substr(0, png.size() - 20));
  write_text(folder_.path() / "a/3.png", "nothing");
  EXPECT_THAT(error_text<FileError>([&] { open_image_folder(folder_.path(), {}); }),
              AllOf(HasSubstr("a/2.png"), HasSubstr("damaged")))
      << "one of those that are looked at";
  std::filesystem::remove(folder_.path() / "a/2.png");
  std::filesystem::remove(folder_.path() / "a/3.png");
  const auto later = open_image_folder(folder_.path(), {.threads = 2});
  write_text(folder_.path() / "a/1.png", png.substr(0, png.size() - 20));
  EXPECT_THAT(error_text<FileError>([&] { read(*later, 1); }), AllOf(HasSubstr("a/1.png"), HasSubstr("damaged")));
  std::filesystem::remove(folder_.path() / "a/1.png");
  copy("rgb.png", "a/1.png");

  std::string other = read_text(kImages / "rgb.jpg");
  const std::size_t frame = other.find("\xFF\xC0");
  other[frame + 6] = 8;  // 8 rows instead of 12
  write_text(folder_.path() / "a/4.jpg", other);
  const auto unequal = open_image_folder(folder_.path(), {});
  EXPECT_THAT(error_text<FileError>([&] { read(*unequal, 2); }), AnyOf(HasSubstr("8 x 16"), HasSubstr("a/4.jpg")));
}

}  // namespace
}  // namespace lockstep::io
