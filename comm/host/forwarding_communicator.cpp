#include "comm/host/forwarding_communicator.hpp"

namespace lockstep::comm {

ForwardingCommunicator::ForwardingCommunicator(Communicator& inner)
    : Communicator(inner.rank(), inner.size()), inner_(&inner) {
  go_on_with(inner);
}

void ForwardingCommunicator::go_on_with(Communicator& inner) {
  before_ += inner_->exposed_seconds() - inner.exposed_seconds();  // keeps the total unchanged
  {
    const std::lock_guard lock(switching_);
    inner_ = &inner;
  }
  set_position(inner.rank(), inner.size(), inner.first_rank());
  set_transport_note(inner.transport_note());
}

void ForwardingCommunicator::do_note_wait(std::string_view text) {
  const std::lock_guard lock(switching_);
  inner_->note_wait(text);
}

void ForwardingCommunicator::do_all_gather(std::span<std::byte> data, std::size_t element_bytes) {
  if (element_bytes == sizeof(float)) {
    inner_->all_gather(std::span(reinterpret_cast<float*>(data.data()), data.size() / sizeof(float)));
  } else {
    inner_->all_gather(data);
  }
}

}  // namespace lockstep::comm
