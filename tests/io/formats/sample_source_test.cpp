#include "io/shards/sample_source.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "io/io_test_support.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The whole source, in blocks of `block` samples: one byte string per field.
std::vector<std::string> drain(SampleSource& source, std::int64_t block) {
  const auto fields = source.stored_fields();
  std::vector<std::string> all(fields.size());
  for (std::int64_t at = 0; at < source.count(); at += block) {
    const std::int64_t samples = std::min(block, source.count() - at);
    std::vector<std::vector<std::byte>> buffers;
    std::vector<std::span<std::byte>> spans;
    for (const Field& field : fields) buffers.emplace_back(field.bytes() * static_cast<std::size_t>(samples));
    for (auto& buffer : buffers) spans.emplace_back(buffer);
    source.read(samples, spans);
    for (std::size_t f = 0; f < fields.size(); ++f) {
      all[f].append(reinterpret_cast<const char*>(buffers[f].data()), buffers[f].size());
    }
  }
  return all;
}

template <class Element>
std::vector<Element> elements(const std::string& bytes) {
  std::vector<Element> result(bytes.size() / sizeof(Element));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

template <class Element>
std::string stored(std::initializer_list<Element> values, bool big_endian) {
  std::string text;
  for (const Element value : values) {
    std::string bytes(reinterpret_cast<const char*>(&value), sizeof value);
    if (big_endian) std::reverse(bytes.begin(), bytes.end());
    text += bytes;
  }
  return text;
}

std::string idx_header(unsigned char type, std::initializer_list<std::uint32_t> extents) {
  std::string text{'\0', '\0', static_cast<char>(type), static_cast<char>(extents.size())};
  return text + stored(extents, true);
}

void write_gzip(const std::filesystem::path& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

class SampleSourceTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }
  std::filesystem::path with(const std::string& name, const std::string& text) const {
    write_text(file(name), text);
    return file(name);
  }
  TemporaryFolder folder_;
};

using Idx = SampleSourceTest;
using Npy = SampleSourceTest;

TEST_F(Idx, ReadsEveryTypeBigEndian) {
  const auto check = [&]<class Element>(unsigned char code, FileType type, std::initializer_list<Element> values) {
    const auto path = with("x", idx_header(code, {2, 3}) + stored(values, true));
    const auto source = open_idx(path, {});
    ASSERT_EQ(source->fields().size(), 1U);
    EXPECT_EQ(source->fields()[0].type, type);
    EXPECT_EQ(source->fields()[0].sample_shape, std::vector<std::int64_t>{3});
    EXPECT_EQ(source->count(), 2);
    EXPECT_FALSE(source->labels_are_classes());
    EXPECT_EQ(elements<Element>(drain(*source, 1)[0]), std::vector<Element>(values)) << int{code};
  };
  check(0x08, FileType::uint8,
        {std::uint8_t{1}, std::uint8_t{2}, std::uint8_t{255}, std::uint8_t{4}, std::uint8_t{5}, std::uint8_t{6}});
  check(0x09, FileType::int8,
        {std::int8_t{-1}, std::int8_t{2}, std::int8_t{3}, std::int8_t{4}, std::int8_t{5}, std::int8_t{6}});
  check(0x0B, FileType::int16,
        {std::int16_t{-300}, std::int16_t{2}, std::int16_t{3}, std::int16_t{4}, std::int16_t{5}, std::int16_t{6}});
  check(0x0C, FileType::int32, {-70000, 2, 3, 4, 5, 6});
  check(0x0D, FileType::float32, {-1.5F, 2.0F, 3.0F, 4.0F, 5.0F, 6.25F});
  check(0x0E, FileType::float64, {-1.1, 2.2, 3.0, 4.0, 5.0, 6.0});
}

TEST_F(Idx, ReadsImagesAndLabelsPlainOrGzipped) {
  std::string images = idx_header(8, {70, 28, 28});
  std::string labels = idx_header(8, {70});
  for (int i = 0; i < 70; ++i) {
    for (int pixel = 0; pixel < 784; ++pixel) images.push_back(static_cast<char>((i * 13 + pixel) % 256));
    labels.push_back(static_cast<char>(i % 10));
  }
  write_gzip(file("x.gz"), images);
  write_gzip(file("y.gz"), labels);
  const auto plain = open_idx(with("x", images), with("y", labels));
  const auto zipped = open_idx(file("x.gz"), file("y.gz"));
  EXPECT_TRUE(plain->labels_are_classes());
  EXPECT_EQ(plain->description(), "idx x y");
  EXPECT_EQ(plain->fields()[0].sample_shape, (std::vector<std::int64_t>{28, 28}));
  EXPECT_EQ(plain->fields()[1].sample_shape, std::vector<std::int64_t>{});
  const auto expected = std::vector<std::string>{images.substr(16), labels.substr(8)};
  EXPECT_EQ(drain(*plain, 11), expected);
  EXPECT_EQ(drain(*zipped, 70), expected);
}

TEST_F(Idx, NamesTheFileAndThePlaceOfDamage) {
  const std::string good = idx_header(8, {1000, 10}) + std::string(10'000, 'a');
  const auto text = [&](const std::filesystem::path& path) {
    return error_text<FileError>([&] { drain(*open_idx(path, {}), 64); });
  };
  EXPECT_THAT(text(file("absent")), AllOf(HasSubstr("absent"), HasSubstr("No such file")));
  EXPECT_THAT(text(folder_.path()), HasSubstr("folder"));
  EXPECT_THAT(text(with("magic", "P5 28 28 255 ")), AllOf(HasSubstr("magic"), HasSubstr("not an IDX file")));
  EXPECT_THAT(text(with("type", idx_header(0x0A, {1}))), HasSubstr("not an IDX file"));
  EXPECT_THAT(text(with("short", good.substr(0, 5000))), AllOf(HasSubstr("short"), HasSubstr("5000")));
  EXPECT_THAT(text(with("header", good.substr(0, 7))), HasSubstr("ends at byte 7"));
  EXPECT_THAT(text(with("long", good + "x")), HasSubstr("goes on after byte 10012"));
  EXPECT_THAT(text(with("none", idx_header(8, {0, 10}))), HasSubstr("no samples"));
  EXPECT_THAT(text(with("huge", idx_header(8, {~0U, ~0U, ~0U, ~0U}))), HasSubstr("impossibly many"));
  EXPECT_THAT(text(with("scalar", idx_header(8, {}))), HasSubstr("single number"));

  std::string random = idx_header(8, {1000, 10});
  for (int i = 0; i < 10'000; ++i)
    random.push_back(static_cast<char>(static_cast<unsigned>(i) * static_cast<unsigned>(i) * 7919U >> 5));
  write_gzip(file("good.gz"), random);
  const std::string zipped = read_text(file("good.gz"));
  EXPECT_THAT(text(with("cut.gz", zipped.substr(0, zipped.size() / 2))),
              AllOf(HasSubstr("cut.gz"), HasSubstr("cut off")));
  EXPECT_THAT(text(with("tail.gz", zipped.substr(0, zipped.size() - 4))), HasSubstr("cut off"));
  EXPECT_THAT(text(with("plain.gz", good)), HasSubstr("not a gzip file"));
  std::string flipped = zipped;
  flipped[flipped.size() - 6] ^= 1;  // gzip's own checksum
  EXPECT_THAT(text(with("flip.gz", flipped)), AllOf(HasSubstr("flip.gz"), HasSubstr("damaged")));
}

TEST_F(Idx, CountsMustMatch) {
  const auto x = with("x", idx_header(8, {3, 2}) + "abcdef");
  const auto y = with("y", idx_header(8, {2}) + "ab");
  EXPECT_THAT(error_text<FileError>([&] { open_idx(x, y); }), AllOf(HasSubstr("3 samples"), HasSubstr("2 labels")));
}

std::string npy(int version, const std::string& dictionary, const std::string& data) {
  std::string text = "\x93NUMPY";
  text += {static_cast<char>(version), '\0'};
  const auto length = static_cast<std::uint32_t>(dictionary.size());
  text += stored({length}, false).substr(0, version == 1 ? 2 : 4);
  return text + dictionary + data;
}

TEST_F(Npy, ReadsEveryVersionTypeAndOrder) {
  const auto check = [&]<class Element>(int version, const std::string& descr, FileType type,
                                        std::initializer_list<Element> values) {
    const bool big_endian = descr[0] == '>';
    const auto path =
        with("x.npy", npy(version, "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (3, 2), }  \n",
                          stored(values, big_endian)));
    const auto source = open_npy(path, {});
    EXPECT_EQ(source->fields()[0].type, type) << descr;
    EXPECT_EQ(source->count(), 3);
    EXPECT_EQ(elements<Element>(drain(*source, 2)[0]), std::vector<Element>(values)) << descr;
  };
  check(1, "|u1", FileType::uint8,
        {std::uint8_t{0}, std::uint8_t{2}, std::uint8_t{255}, std::uint8_t{4}, std::uint8_t{5}, std::uint8_t{6}});
  check(1, "|b1", FileType::int8,
        {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{1}, std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{0}});
  check(2, "|i1", FileType::int8,
        {std::int8_t{-1}, std::int8_t{2}, std::int8_t{3}, std::int8_t{4}, std::int8_t{5}, std::int8_t{6}});
  check(
      3, "<u2", FileType::uint16,
      {std::uint16_t{65535}, std::uint16_t{2}, std::uint16_t{3}, std::uint16_t{4}, std::uint16_t{5}, std::uint16_t{6}});
  check(1, ">i2", FileType::int16,
        {std::int16_t{-300}, std::int16_t{2}, std::int16_t{3}, std::int16_t{4}, std::int16_t{5}, std::int16_t{6}});
  check(1, "<i4", FileType::int32, {-70000, 2, 3, 4, 5, 6});
  check(2, "<i8", FileType::int64,
        {std::int64_t{-1} << 40, std::int64_t{2}, std::int64_t{3}, std::int64_t{4}, std::int64_t{5}, std::int64_t{6}});
  check(1, ">f4", FileType::float32, {-1.5F, 2.0F, 3.0F, 4.0F, 5.0F, 6.25F});
  check(3, "<f8", FileType::float64, {-1.1, 2.2, 3.0, 4.0, 5.0, 6.0});
}

TEST_F(Npy, KindOfLabelsFollowsTheirType) {
  const auto x =
      with("x.npy", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", stored({1.0F, 2.0F}, false)));
  const auto classes = with("c.npy", npy(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 1), }",
                                         stored({std::int64_t{1}, std::int64_t{0}}, false)));
  const auto targets = with("t.npy", npy(1, "{'shape': (2, 2), 'fortran_order': False, 'descr': '<f4'}",
                                         stored({1.0F, 2.0F, 3.0F, 4.0F}, false)));
  EXPECT_TRUE(open_npy(x, classes)->labels_are_classes());
  EXPECT_FALSE(open_npy(x, targets)->labels_are_classes());
  const auto floats =
      with("f.npy", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }", stored({1.0F, 1.0F}, false)));
  EXPECT_TRUE(open_npy(x, floats)->labels_are_classes());
  EXPECT_EQ(open_npy(x, floats)->fields()[1].type, FileType::int32);
  EXPECT_FALSE(open_npy(x, floats, {.meaning = LabelMeaning::numbers})->labels_are_classes());
  EXPECT_FALSE(open_npy(x, classes, {.meaning = LabelMeaning::numbers})->labels_are_classes());
  EXPECT_EQ(open_npy(x, targets)->fields()[1].elements(), 2);
  EXPECT_EQ(open_npy(x, targets)->fields()[0].sample_shape, std::vector<std::int64_t>{});
}

TEST_F(Npy, RefusesLabelsThatAreNoClassNumbersBeforeItIsRead) {
  const auto x =
      with("x.npy", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", stored({1.0F, 2.0F}, false)));
  for (const std::int64_t label : {std::int64_t{-1}, std::int64_t{1} << 40}) {
    const auto y = with("y.npy", npy(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 1), }",
                                     stored({std::int64_t{1}, label}, false)));
    EXPECT_THAT(error_text<FileError>([&] { open_npy(x, y); }),
                AllOf(HasSubstr("y.npy: sample 1 has label " + std::to_string(label)), HasSubstr("--regression")));
    EXPECT_FALSE(open_npy(x, y, {.meaning = LabelMeaning::numbers})->labels_are_classes());
  }
}

TEST_F(Npy, SaysWhatItCannotRead) {
  const auto text = [&](const std::string& content) {
    const auto path = with("bad.npy", content);
    return error_text<FileError>([&] { drain(*open_npy(path, {}), 1); });
  };
  const std::string data(24, 'x');
  EXPECT_THAT(text("PK\3\4 an npz archive"), AllOf(HasSubstr("bad.npy"), HasSubstr("not an NPY")));
  EXPECT_THAT(text(npy(4, "{}", data)), HasSubstr("version 4"));
  EXPECT_THAT(text(npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }", data)),
              HasSubstr("ascontiguousarray"));
  EXPECT_THAT(text(npy(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (3, 2), }", data)),
              AllOf(HasSubstr("f2"), HasSubstr("astype")));
  EXPECT_THAT(text(npy(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3, 2), }", data)),
              HasSubstr("not supported"));
  EXPECT_THAT(text(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", data)),
              HasSubstr("single number"));
  EXPECT_THAT(text(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", data)),
              HasSubstr("impossible"));
  EXPECT_THAT(text(npy(1, "{'descr': '<f4', 'fortran_order': False, }", data)), HasSubstr("no shape"));
  EXPECT_THAT(text(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3), }", data)), HasSubstr("cut off"));
  EXPECT_THAT(text(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1), }", data)), HasSubstr("goes on"));
}

TEST(Synthetic, IsTheSameWhateverTheBlockAndGoesOnWhereToldTo) {
  for (const auto task : {SyntheticOptions::Task::classification, SyntheticOptions::Task::regression}) {
    const SyntheticOptions options{.task = task, .samples = 50, .features = 7, .classes = 3, .seed = 9};
    const auto all = drain(*make_synthetic(options), 50);
    EXPECT_EQ(all, drain(*make_synthetic(options), 1));
    EXPECT_EQ(all, drain(*make_synthetic(options), 13));
    SyntheticOptions tail = options;
    tail.first = 20;
    tail.samples = 30;
    const auto rest = drain(*make_synthetic(tail), 7);
    EXPECT_EQ(all[0].substr(20 * 7 * 4), rest[0]);
    EXPECT_EQ(all[1].substr(20 * 4), rest[1]);
    SyntheticOptions other = options;
    other.seed = 10;
    EXPECT_NE(all[0], drain(*make_synthetic(other), 50)[0]);
  }
}

TEST(Synthetic, RegressionIsTheMeanOfTwoXPlusOne) {
  const auto source =
      make_synthetic({.task = SyntheticOptions::Task::regression, .samples = 4000, .features = 3, .noise = 0.25});
  EXPECT_FALSE(source->labels_are_classes());
  const auto all = drain(*source, 1000);
  const auto x = elements<float>(all[0]);
  const auto y = elements<float>(all[1]);
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double expected = (2 * (x[3 * i] + x[3 * i + 1] + x[3 * i + 2]) + 3) / 3;
    sum += y[i] - expected;
    squares += (y[i] - expected) * (y[i] - expected);
    ASSERT_LT(std::abs(x[3 * i]), 1.0F + 1e-6F);
  }
  EXPECT_NEAR(sum / 4000, 0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / 4000), 0.25, 0.02);
}

/// Accuracy on new samples of the linear classifier that the class means of `samples` samples define: score of class c
/// = m_c . x - |m_c|^2 / 2.
double linear_accuracy(SyntheticOptions options) {
  const auto features = static_cast<std::size_t>(options.features);
  const auto train = drain(*make_synthetic(options), options.samples);
  options.first = options.samples;
  const auto test = drain(*make_synthetic(options), options.samples);
  std::vector<std::vector<double>> means(static_cast<std::size_t>(options.classes), std::vector<double>(features));
  std::vector<double> counts(means.size(), 1e-9);
  const auto x = elements<float>(train[0]);
  const auto y = elements<std::int32_t>(train[1]);
  for (std::size_t i = 0; i < y.size(); ++i) {
    counts[static_cast<std::size_t>(y[i])] += 1;
    for (std::size_t j = 0; j < features; ++j) means[static_cast<std::size_t>(y[i])][j] += x[i * features + j];
  }
  const auto test_x = elements<float>(test[0]);
  const auto test_y = elements<std::int32_t>(test[1]);
  double right = 0;
  for (std::size_t i = 0; i < test_y.size(); ++i) {
    std::size_t best = 0;
    double best_score = -1e300;
    for (std::size_t c = 0; c < means.size(); ++c) {
      double score = 0;
      for (std::size_t j = 0; j < features; ++j) {
        const double mean = means[c][j] / counts[c];
        score += mean * test_x[i * features + j] - mean * mean / 2;
      }
      if (score > best_score) {
        best_score = score;
        best = c;
      }
    }
    right += static_cast<std::int32_t>(best) == test_y[i] ? 1 : 0;
  }
  return right / static_cast<double>(test_y.size());
}

TEST(Synthetic, ClassesAreLinearlySeparable) {
  EXPECT_GT(linear_accuracy({.samples = 2000, .features = 784, .classes = 10}), 0.95);
  EXPECT_GT(linear_accuracy({.samples = 2000, .features = 20, .classes = 4}), 0.95);
  EXPECT_GT(linear_accuracy({.samples = 2000, .features = 2, .classes = 10}), 0.95);
  EXPECT_GT(linear_accuracy({.samples = 500, .features = 1, .classes = 2}), 0.95);
}

TEST(Synthetic, RefusesNonsense) {
  EXPECT_THROW(make_synthetic({.samples = 0}), std::invalid_argument);
  EXPECT_THROW(make_synthetic({.features = 0}), std::invalid_argument);
  EXPECT_THROW(make_synthetic({.classes = 0}), std::invalid_argument);
  EXPECT_THROW(make_synthetic({.noise = -1}), std::invalid_argument);
}

class Csv : public SampleSourceTest {
 protected:
  std::unique_ptr<SampleSource> open(const std::string& text, const CsvOptions& options) {
    return open_csv(with("data.csv", text), options);
  }
  std::string error(const std::string& text, const CsvOptions& options) {
    return error_text<FileError>([&] { drain(*open(text, options), 2); });
  }
};

TEST_F(Csv, ReadsNumbersAndClassNumbers) {
  const auto source = open(
      "\xEF\xBB\xBF"
      "a,label,b\r\n1,2, 3.5 \r\n-1e2,0,+4\r\n1e-60,1,.5\r\n\r\n",
      {.label_column = "label"});
  ASSERT_EQ(source->count(), 3);
  EXPECT_TRUE(source->labels_are_classes());
  EXPECT_TRUE(source->class_names().empty());
  EXPECT_EQ(source->fields()[0].sample_shape, std::vector<std::int64_t>{2});
  const auto all = drain(*source, 2);
  EXPECT_EQ(elements<float>(all[0]), (std::vector<float>{1, 3.5F, -100, 4, 0, 0.5F}));
  EXPECT_EQ(elements<std::int32_t>(all[1]), (std::vector<std::int32_t>{2, 0, 1}));
}

TEST_F(Csv, TextualClassesGetNumbersInTheOrderOfTheirNames) {
  const auto source = open("x;kind\n1;\"cat; big\"\n2;dog\n3;7\n4;\"cat; big\"\n5;\"say \"\"woof\"\"\nloud\"",
                           {.separator = ';', .label_column = "-1"});
  EXPECT_EQ(source->class_names(), (std::vector<std::string>{"7", "cat; big", "dog", "say \"woof\"\nloud"}));
  const auto all = drain(*source, 3);
  EXPECT_EQ(elements<std::int32_t>(all[1]), (std::vector<std::int32_t>{1, 2, 0, 1, 3}));
  EXPECT_EQ(elements<float>(all[0]), (std::vector<float>{1, 2, 3, 4, 5}));
}

TEST_F(Csv, ReadsTargetsAndUnlabelledRowsAndGzip) {
  const auto targets =
      open("1\t10\n2\t20.5\n", {.header = false, .separator = '\t', .label_column = "1", .label_is_class = false});
  EXPECT_FALSE(targets->labels_are_classes());
  EXPECT_EQ(elements<float>(drain(*targets, 2)[1]), (std::vector<float>{10, 20.5F}));
  const auto unlabelled = open("1,10\n2,20\n", {.header = false});
  ASSERT_EQ(unlabelled->fields().size(), 1U);
  EXPECT_EQ(elements<float>(drain(*unlabelled, 2)[0]), (std::vector<float>{1, 10, 2, 20}));
  std::string many = "x,y\n";
  for (int i = 0; i < 60'000; ++i) many += std::to_string(i) + "," + std::to_string(i % 7) + "\n";
  write_gzip(file("many.csv.gz"), many);
  const auto zipped = open_csv(file("many.csv.gz"), {.label_column = "y"});
  ASSERT_EQ(zipped->count(), 60'000);
  const auto all = drain(*zipped, 999);
  const auto x = elements<float>(all[0]);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], static_cast<float>(i));
}

TEST_F(Csv, ColumnsOfTextsBecomeOneInputForEachText) {
  const auto source = open("ocean,rooms,price\nNEAR,3,1\nINLAND,4,2\nNEAR,5,3\n", {.label_column = "price"});
  EXPECT_EQ(source->fields()[0].sample_shape, std::vector<std::int64_t>{3});
  EXPECT_EQ(elements<float>(drain(*source, 2)[0]), (std::vector<float>{0, 1, 3, 1, 0, 4, 0, 1, 5}));
  EXPECT_EQ(source->remarks().front(), "column 0 (ocean) holds 2 different texts: one input of 0 or 1 for each");
  const std::string names = "name,y\nAda,1\nBob,2\n";
  EXPECT_THAT(error(names, {.label_column = "y", .text = CsvOptions::Text::error}),
              AllOf(HasSubstr("data.csv:2"), HasSubstr("Ada"), HasSubstr("--ignore-columns")));
  EXPECT_THAT(error(names, {.label_column = "y", .ignored = {"name"}}), HasSubstr("nothing else"));
  std::string identifiers = "id,a\n";
  for (int i = 0; i < 1002; ++i) identifiers += "n" + std::to_string(i) + ",1\n";
  EXPECT_THAT(error(identifiers, {}), AllOf(HasSubstr("column 0 (id)"), HasSubstr("more than 1000 different texts")));
}

TEST_F(Csv, MissingCellsByChoice) {
  const std::string text = "a,b,y\n1,NA,10\n2,x,20\n,y,30\n6,x,\n";
  const auto options = [](CsvOptions::Missing missing) {
    return CsvOptions{.label_column = "y", .label_is_class = false, .missing = missing};
  };
  EXPECT_THAT(error("a,y\n1,2\n,3\n", options(CsvOptions::Missing::error)),
              AllOf(HasSubstr(":3"), HasSubstr("missing"), HasSubstr("--missing drop")));
  EXPECT_EQ(open(text, options(CsvOptions::Missing::drop))->table()->columns[0].filled, 0);
  const auto dropped = open(text, options(CsvOptions::Missing::drop));
  ASSERT_EQ(dropped->count(), 1);
  const auto one = drain(*dropped, 1);
  EXPECT_EQ(elements<float>(one[0]), (std::vector<float>{2, 1}));
  EXPECT_EQ(elements<float>(one[1]), std::vector<float>{20});
  EXPECT_EQ(dropped->remarks().back(), "3 lines with missing cells are left out");
  const auto filled = open("a,b,y\n1,NA,10\n2,x,20\n,y,30\n", options(CsvOptions::Missing::mean));
  EXPECT_EQ(elements<float>(drain(*filled, 2)[0]), (std::vector<float>{1, 0, 0, 2, 1, 0, 1.5F, 0, 1}));
  EXPECT_EQ(filled->table()->columns[0], (TableColumn{.name = "a", .fill = 1.5, .filled = 1}));
  EXPECT_THAT(error(text, options(CsvOptions::Missing::mean)), AllOf(HasSubstr(":5"), HasSubstr("column 2 (y)")));
}

TEST_F(Csv, KnowsItsColumns) {
  const auto source =
      open("id,colour,size,label\nx1,red,1,b\nx22,blue,3,a\n", {.label_column = "label", .id_column = "id"});
  using Kind = TableColumn::Kind;
  EXPECT_EQ(source->table(),
            (TableSchema{.named = true,
                         .columns = {{.name = "colour", .kind = Kind::categories, .categories = {"blue", "red"}},
                                     {.name = "size", .fill = 2}},
                         .labels = {"label"}}));
  EXPECT_EQ(source->sample_id(), (SampleId{.name = "id", .bytes = 3}));
  const auto all = drain(*source, 2);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[2], std::string("x1\0x22", 6));
  EXPECT_EQ(elements<float>(all[0]), (std::vector<float>{0, 1, 1, 1, 0, 3}));
  EXPECT_FALSE(open("1,2\n3,4\n", {.header = false})->table()->named);
}

TEST_F(Csv, WholeNumbersAreOneClassInAnySpelling) {
  const auto source = open("a,y\n1,2.0\n2,0\n3,1.\n4,+2\n", {.label_column = "y"});
  EXPECT_TRUE(source->class_names().empty());
  EXPECT_EQ(elements<std::int32_t>(drain(*source, 3)[1]), (std::vector<std::int32_t>{2, 0, 1, 2}));
  const auto from_one = open("a,y\n1,10\n2,9\n3,1\n", {.label_column = "y"});
  EXPECT_EQ(from_one->class_names(), (std::vector<std::string>{"1", "9", "10"})) << "no empty classes in between";
  EXPECT_EQ(elements<std::int32_t>(drain(*from_one, 3)[1]), (std::vector<std::int32_t>{2, 1, 0}));
  EXPECT_THAT(from_one->remarks().back(), HasSubstr("3 different whole numbers, 1 to 10"));
  EXPECT_EQ(open("a,y\n1,-1\n2,1\n", {.label_column = "y"})->class_names(), (std::vector<std::string>{"-1", "1"}));
}

TEST_F(Csv, LabelsThatAreNoClassesAreRefused) {
  const CsvOptions options{.label_column = "y"};
  EXPECT_THAT(error("a,y\n1,0.5\n2,1\n", options), AllOf(HasSubstr(":2"), HasSubstr("--regression")));
  EXPECT_THAT(error("a,y\n1,0\n2,nan\n", options), AllOf(HasSubstr(":3"), HasSubstr("missing")));
  EXPECT_THAT(error("a,y\n1,0\n2,2000000000\n", options), HasSubstr("2 samples do not explain"));
  EXPECT_THAT(error("a,y\n1,\"0,5\"\n2,\"1,5\"\n", options), HasSubstr("--decimal ,"));
}

TEST_F(Csv, HeadersThatNameNothingAreRefused) {
  const CsvOptions options{.label_column = "-1"};
  EXPECT_THAT(error("a,b,a,y\n1,2,3,0\n", options), AllOf(HasSubstr("columns 0 and 2 are both called a")));
  EXPECT_EQ(open("a,b,a,y\n1,2,3,0\n", {.label_column = "y", .ignored = {"2"}})->count(), 1);
  EXPECT_THAT(error("a,a\n1,2\n", {.label_column = "a"}), HasSubstr("two columns are called a"));
  for (const char* unnamed : {"", "Unnamed: 0"}) {
    const std::string text = std::string(unnamed) + ",b,y\n0,2,0\n1,3,1\n";
    EXPECT_THAT(error(text, options), AllOf(HasSubstr("column 0 has no name"), HasSubstr("--ignore-columns 0")));
    EXPECT_EQ(open(text, {.label_column = "y", .ignored = {"0"}})->count(), 2);
  }
  EXPECT_THAT(error("5.1,3.5,setosa\n4.9,3,setosa\n", options), AllOf(HasSubstr("--no-header"), HasSubstr("--header")));
  EXPECT_EQ(open("2019,2020,y\n1,2,0\n", {.numbers_may_be_names = true, .label_column = "y"})->count(), 1);
  std::string lines = "id,y\n";
  for (int i = 100; i < 120; ++i) lines += std::to_string(i) + "," + std::to_string(i % 2) + "\n";
  EXPECT_THAT(open(lines, {.label_column = "y"})->remarks(), testing::ElementsAre(HasSubstr("--id-column id makes")));
}

TEST_F(Csv, NumbersInAnotherSpellingAreNoCategories) {
  const CsvOptions options{.label_column = "y"};
  for (const char* cell : {"\"1,5\"", "\"1,234\"", "12%", "$5", "1 234", "5 kg"}) {
    const std::string text =
        std::string("a,y\n") + cell + ",0\n" + (cell == std::string("5 kg") ? "6 kg" : cell) + ",1\n";
    EXPECT_THAT(error(text, options), AllOf(HasSubstr("column 0 (a)"), HasSubstr("--categories a takes"))) << cell;
    EXPECT_GE(open(text, {.label_column = "y", .categories = {"a"}})->fields()[0].elements(), 1);
  }
  EXPECT_THAT(error("a,y\n1.5,0\n\"2,5\",1\n", options), AllOf(HasSubstr(":3"), HasSubstr("--decimal ,")));
  const auto commas =
      open("a;y\n1,5;0\n1.234,5;1\n", {.separator = ';', .decimal = ',', .thousands = '.', .label_column = "y"});
  EXPECT_EQ(elements<float>(drain(*commas, 2)[0]), (std::vector<float>{1.5F, 1234.5F}));
  EXPECT_EQ(elements<float>(drain(*open("a,y\n \"1.5\" ,0\n", options), 1)[0]), std::vector<float>{1.5F})
      << "a blank before the quote";
  const auto codes = open("zip,y\n10115,0\n9999,1\n10115.0,0\n", {.label_column = "y", .categories = {"zip"}});
  EXPECT_EQ(codes->table()->columns[0].categories, (std::vector<std::string>{"9999", "10115", "10115.0"}));
}

TEST_F(Csv, CodesAreTheirTexts) {
  const auto zips = open("zip,y\n00501,0\n501,1\n1E2,0\n100,1\n0100,0\n", {.label_column = "y", .categories = {"zip"}});
  EXPECT_EQ(zips->table()->columns[0].categories, (std::vector<std::string>{"0100", "100", "1E2", "00501", "501"}));
  const auto large = open("a,y\n9007199254740993,0\n9007199254740992,1\n", {.label_column = "y", .categories = {"a"}});
  EXPECT_EQ(large->table()->columns[0].categories.size(), 2U);
  const auto labels = open("a,y\n1,007\n2,7\n3,1e1\n4,10\n5,A\n", {.label_column = "y"});
  EXPECT_EQ(labels->class_names(), (std::vector<std::string>{"007", "10", "1e1", "7", "A"}));
  EXPECT_EQ(elements<std::int32_t>(drain(*labels, 5)[1]), (std::vector<std::int32_t>{0, 3, 2, 1, 4}));
  EXPECT_THAT(error("a,y\n1,9007199254740993\n2,9007199254740992\n", {.label_column = "y"}),
              HasSubstr("no whole number below 2^53"));
}

TEST_F(Csv, CodesOfAnotherTableAreFoundByTextAndThenByNumber) {
  using Kind = TableColumn::Kind;
  const TableEncoding encoding{
      .table = {.named = true,
                .columns = {{.name = "zip", .kind = Kind::categories, .categories = {"501", "0100", "100"}}},
                .labels = {"y"}},
      .labels_are_classes = true,
      .classes = 2,
      .class_names = {"7", "A"},
      .from = "first"};
  const CsvOptions options{.encoding = encoding};
  const auto source = open("zip,y\n00501,007\n0100,A\n100,007\n", options);
  const auto all = drain(*source, 3);
  EXPECT_EQ(elements<float>(all[0]), (std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(elements<std::int32_t>(all[1]), (std::vector<std::int32_t>{0, 1, 0}));
  EXPECT_THAT(error("zip,y\n1E2,A\n", options), HasSubstr("\"1E2\", a category that is not known"));
  EXPECT_THAT(error("zip,y\n00501,A\n501,A\n", options),
              HasSubstr("column 0 (zip) holds \"00501\" and \"501\", and both are \"501\" among the known categories"));
  EXPECT_THAT(error("zip,y\n501,007\n501,7\n", options),
              HasSubstr("column 1 (y) holds \"007\" and \"7\", and both are \"7\" among the classes of first"));
}

TEST_F(Csv, MissingLabelsAreLeftOut) {
  const CsvOptions drop{.label_column = "y", .missing = CsvOptions::Missing::drop};
  const auto source = open("a,y\n1,none\n2,yes\n3,\n4,NA\n5,NaN\n6,no\n", drop);
  EXPECT_EQ(source->class_names(), (std::vector<std::string>{"no", "none", "yes"}));
  EXPECT_EQ(source->remarks().back(), "3 lines with missing cells are left out");
}

TEST_F(Csv, MessagesShowBytesThatWouldEndThem) {
  EXPECT_THAT(error(std::string("a,y\n1\0,0\n", 9) + "2,1\n", {.label_column = "y"}),
              AllOf(HasSubstr("\"1\\x00\""), HasSubstr("which is no finite number")));
}

TEST_F(Csv, ProposesTheSeparator) {
  EXPECT_THAT(error("a;b;y\n1;2;0\n", {.label_column = "y"}), HasSubstr("--separator \";\""));
  EXPECT_THAT(error("a\tb\n1,5\t2,5\n", {}), HasSubstr("--separator tab"));
  EXPECT_THAT(error("1,5;2,5\n1;2,5\n", {.header = false}), HasSubstr("--separator \";\""));
}

TEST_F(Csv, IsEncodedAsAnotherTable) {
  const auto first = open("colour,size,y\nred,1,b\nblue,3,a\n", {.label_column = "y"});
  const TableEncoding encoding{
      .table = *first->table(), .labels_are_classes = true, .classes = 2, .class_names = {"a", "b"}, .from = "first"};
  const auto with = [&](CsvOptions::Missing missing, UnknownCategories unknown) {
    return CsvOptions{.missing = missing, .encoding = encoding, .unknown = unknown};
  };
  const auto second =
      open("extra,y,size,colour\n0,a,7,blue\n0,b,,blue\n", with(CsvOptions::Missing::mean, UnknownCategories::error));
  const auto all = drain(*second, 2);
  EXPECT_EQ(elements<float>(all[0]), (std::vector<float>{1, 0, 7, 1, 0, 2})) << "the first table's mean";
  EXPECT_EQ(elements<std::int32_t>(all[1]), (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(second->class_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(second->table()->columns[1].filled, 1);
  EXPECT_THAT(second->remarks(), testing::Contains(HasSubstr("not used, for first has no such column: extra")));
  const CsvOptions strict = with(CsvOptions::Missing::error, UnknownCategories::error);
  EXPECT_THAT(error("colour,y\nred,a\n", strict), HasSubstr("lacks a column, which first has: size"));
  EXPECT_THAT(error("colour,size,y\ngreen,1,a\n", strict),
              AllOf(HasSubstr(":2"), HasSubstr("\"green\", a category that is not known"), HasSubstr("blue, red")));
  EXPECT_THAT(error("colour,size,y\nred,1,c\n", strict), HasSubstr("\"c\", a class that first does not know"));
  EXPECT_THAT(error("colour,size,y\nred,big,a\n", strict), HasSubstr("\"big\", which is no finite number"));
  const auto lenient = open("colour,size\ngreen,1\n", with(CsvOptions::Missing::error, UnknownCategories::none));
  EXPECT_EQ(elements<float>(drain(*lenient, 1)[0]), (std::vector<float>{0, 0, 1}));
  EXPECT_EQ(lenient->fields().size(), 1U) << "without labels";
}

TEST_F(Csv, SeveralTargetsAndDates) {
  const auto source = open("a,b,c\n1,2,3\n4,5,6\n", {.label_column = "c,a", .label_is_class = false});
  EXPECT_EQ(source->fields()[1].sample_shape, std::vector<std::int64_t>{2});
  const auto all = drain(*source, 1);
  EXPECT_EQ(elements<float>(all[0]), (std::vector<float>{2, 5}));
  EXPECT_EQ(elements<float>(all[1]), (std::vector<float>{3, 1, 6, 4}));
  for (const char* date : {"2024-05-31", "31.05.2024", "5/31/24", "2024-05-31T12:00:00", "2024-05-31 12:00"}) {
    EXPECT_THAT(error(std::string("when,y\n") + date + ",1\n", {.label_column = "y"}), HasSubstr("looks like a date"));
  }
  EXPECT_EQ(open("when,y\n1.2.3.4,1\n", {.label_column = "y"})->count(), 1) << "no date";
}

TEST_F(Csv, NamesFileLineAndColumn) {
  const std::string head = "a,b,label\n1,2,0\n";
  const CsvOptions options{.label_column = "label"};
  EXPECT_THAT(error(head + "1,oops,1\n", options),
              AllOf(HasSubstr("data.csv:3"), HasSubstr("column 1 (b)"), HasSubstr("oops")));
  EXPECT_THAT(error(head + "1,,1\n", options), AllOf(HasSubstr(":3"), HasSubstr("column 1 (b)")));
  EXPECT_THAT(error(head + "nan,1,1\n", options), HasSubstr("no finite number"));
  EXPECT_THAT(error(head + "1,1e60,1\n", options), HasSubstr("1e60"));
  EXPECT_THAT(error(head + "1,0x10,1\n", options), HasSubstr("0x10"));
  EXPECT_THAT(error(head + "1,2\n", options), AllOf(HasSubstr(":3"), HasSubstr("2 columns")));
  EXPECT_THAT(error(head + "1,2,\n", options), AllOf(HasSubstr(":3"), HasSubstr("empty")));
  EXPECT_THAT(error(head + "1,\"2,0\n", options), AllOf(HasSubstr(":3"), HasSubstr("never ends")));
  EXPECT_THAT(error("a,b\n1,\"two\nlines\"\n3x,c\n", {.label_column = "b"}), HasSubstr(":4"));
  EXPECT_THAT(error("a,b,label\n", options), HasSubstr("no samples"));
  EXPECT_THAT(error("", options), HasSubstr("empty"));
  EXPECT_THAT(error(std::string("\xFF\xFE"
                                "a\0,\0b\0\n\0",
                                10),
                    options),
              HasSubstr("is UTF-16"));
  EXPECT_THAT(error(head, {.label_column = "labl"}), AllOf(HasSubstr("labl"), HasSubstr("a, b, label")));
  EXPECT_THAT(error(head, {.label_column = "3"}), HasSubstr("no label column 3"));
  EXPECT_THAT(error(head, {.label_column = "-4"}), HasSubstr("no label column -4"));
  EXPECT_THAT(error("label\n1\n", options), HasSubstr("nothing else"));
  EXPECT_THROW(open(head, {.separator = '"'}), std::invalid_argument);
  std::string names = "x,name\n";
  for (int i = 0; i < 70'000; ++i) names += "1,n" + std::to_string(i) + "\n";
  EXPECT_THAT(error(names, {.label_column = "name"}), HasSubstr("more than 65536"));
}

}  // namespace
}  // namespace lockstep::io
