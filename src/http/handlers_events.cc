#include <array>
#include <mutex>

#include "base/json_text.h"
#include "http/handlers.h"

namespace faultline::http {
namespace {

std::string frame_of(const service::LiveEvent& event) {
  std::string frame;
  frame.reserve(event.json.size() + event.name.size() + 48);
  frame += "id: " + std::to_string(event.id);
  frame += "\nevent: " + event.name;
  frame += "\ndata: " + event.json;
  frame += "\n\n";
  return frame;
}

/// A stream that exists only once the service has agreed to it; the service may have something to say before
/// that.
class EventStream {
 public:
  void open(std::shared_ptr<Stream> stream) {
    const std::scoped_lock lock{mutex_};
    stream_ = std::move(stream);
    if (last_) stream_->end(*last_);
  }
  void send(const service::LiveEvent& event) {
    const std::scoped_lock lock{mutex_};
    if (stream_ && !stream_->send(frame_of(event))) stream_ = nullptr;
  }
  void end(const service::Problem& why) {
    JsonWriter out;
    out.begin_object();
    out.key("code").string(to_string(why.code));
    out.key("reason").string(why.message);
    out.end_object();
    const std::scoped_lock lock{mutex_};
    last_ = "event: ended\ndata: " + out.take() + "\n\n";
    if (stream_) stream_->end(*last_);
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Stream> stream_;
  std::optional<std::string> last_;  ///< it is to end with this
};

}  // namespace

void get_events(const Call& call) {
  constexpr std::array<std::string_view, 1> kKnown{"queue"};
  const auto parameters = accepted(call, parse_query(call.request.query, kKnown));
  if (!parameters) return;
  const std::string queue = parameters->empty() ? std::string{} : parameters->front().second;
  if (!queue.empty()) {
    const auto problem = check_access(call.who, service::Operation::watch_events, queue);
    if (problem) return refuse(call, *problem);
  }
  const auto stream = std::make_shared<EventStream>();
  auto watch = accepted(call, call.service.watch(
                                  call.who,
                                  [stream, queue](const std::shared_ptr<const service::LiveEvent>& event) {
                                    if (!queue.empty() && !event->queue.empty() && event->queue != queue)
                                      return;
                                    stream->send(*event);
                                  },
                                  [stream](const service::Problem& why) { stream->end(why); }));
  if (!watch) return;
  Response head{.content_type = "text/event-stream"};
  head.headers.emplace_back("Cache-Control", "no-store");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // a proxy should pass events on at once
  call.exchange->keep(std::move(*watch));
  stream->open(call.exchange->stream(
      std::move(head), ": still here\n\n",
      "event: dropped\ndata: {\"reason\":\"the events came faster than they were read\"}\n\n"));
}

}  // namespace faultline::http
