#include "app/plan/common_result.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/usage_error.hpp"
#include "comm/consensus.hpp"
#include "io/files/unknown_name.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {

std::vector<std::string> gather_said(comm::Communicator& communicator, const std::string& text) {
  std::vector<std::string> texts;
  for (const comm::RankText& said : comm::gather_distinct(communicator, text)) {
    texts.push_back(comm::with_ranks_unless_all(said));
  }
  return texts;
}

void all_succeed_or_usage(comm::Communicator& communicator, const std::function<void()>& work) {
  std::string misuse;
  comm::all_succeed(communicator, [&] {
    try {
      work();
    } catch (const UsageError& error) {
      misuse = io::visible_line(error.what());
    } catch (const io::UnknownName& error) {
      misuse = io::visible_line(error.what());
    }
  });
  const std::vector<std::string> texts = gather_said(communicator, misuse);
  if (!texts.empty()) throw UsageError(join_lines(texts));
}

std::string join_lines(const std::vector<std::string>& lines) { return fmt::format("{}", fmt::join(lines, "\n")); }

}  // namespace lockstep::app
