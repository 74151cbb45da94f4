#include "trace/exporter.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

namespace faultline::trace {
namespace {

constexpr std::chrono::minutes kTellEvery{1};

bool is_busy(int status) { return status == 429 || status == 502 || status == 503 || status == 504; }

}  // namespace

Expected<std::unique_ptr<Exporter>> Exporter::start(ExporterOptions options) {
  auto url = parse_endpoint(options.endpoint);
  if (!url) return std::unexpected(std::move(url.error()));
  if (!(options.sample_ratio >= 0 && options.sample_ratio <= 1)) {
    return std::unexpected(Error{.code = ErrorCode::invalid_argument,
                                 .message = "the sample ratio of traces is not between 0 and 1",
                                 .hint = "1 exports all, 0.01 one job in a hundred"});
  }
  if (!options.ca_file.empty() && !std::ifstream{options.ca_file}) {
    return std::unexpected(
        Error{.code = ErrorCode::invalid_argument,
              .message = "otlp_ca: the file " + options.ca_file +
                         " cannot be read: " + std::generic_category().message(errno),
              .hint = "name a PEM file with the authority of the collector's certificate"});
  }
  return std::make_unique<Exporter>(std::move(options), *url);
}

Exporter::Exporter(ExporterOptions options, const std::string& url)
    : options_(std::move(options)), post_(url + "/v1/traces", options_.ca_file), thread_([this] { run(); }) {}

void Exporter::add(Span span) {
  const std::lock_guard lock{mutex_};
  if (stopped_ || waiting_.size() >= options_.waiting_max) {
    ++counters_.dropped;
    ++dropped_untold_;
    if (why_dropped_.empty()) why_dropped_ = "too many wait for the collector";
    return;
  }
  waiting_.push_back(std::move(span));
  // The thread wakes by itself in time for what is not a full batch.
  if (waiting_.size() == 1 || waiting_.size() == options_.batch_max) changed_.notify_one();
}

Exporter::Counters Exporter::counters() const {
  const std::lock_guard lock{mutex_};
  return counters_;
}

void Exporter::finish(Clock::time_point deadline) {
  {
    std::unique_lock lock{mutex_};
    finishing_ = true;
    changed_.notify_one();
    idle_.wait_until(lock, deadline, [&] { return waiting_.empty() && !sending_; });
  }
  stop();
}

void Exporter::stop() {
  {
    const std::lock_guard lock{mutex_};
    stopped_ = true;
  }
  changed_.notify_one();
  post_.cancel();
  if (!thread_.joinable()) return;
  thread_.join();
  const std::size_t left = std::exchange(waiting_, {}).size();
  if (left > 0) count_dropped(left, "the process ended before they were sent");
  tell_from_ = {};
  tell_dropped();
}

void Exporter::run() {
  for (;;) {
    std::vector<Span> batch = next_batch();
    if (batch.empty()) return;
    send(std::move(batch));
    tell_dropped();
    const std::lock_guard lock{mutex_};
    sending_ = false;
    if (waiting_.empty()) idle_.notify_all();
  }
}

std::vector<Span> Exporter::next_batch() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return stopped_ || !waiting_.empty(); });
  changed_.wait_for(lock, options_.interval,
                    [&] { return stopped_ || finishing_ || waiting_.size() >= options_.batch_max; });
  if (stopped_) return {};
  const auto end =
      waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(waiting_.size(), options_.batch_max));
  std::vector<Span> batch{std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end)};
  waiting_.erase(waiting_.begin(), end);
  sending_ = true;
  return batch;
}

void Exporter::send(std::vector<Span> batch) {
  const std::string body = to_otlp_json(options_.resource, batch);
  std::chrono::milliseconds wait = options_.backoff_min;
  std::string why;
  for (int tried = 1;; ++tried) {
    const auto status = post_.send(body, options_.timeout);
    if (status && *status / 100 == 2) {
      const std::lock_guard lock{mutex_};
      counters_.exported += batch.size();
      return;
    }
    why = status ? "the collector answered " + std::to_string(*status) : "the collector: " + status.error();
    if ((status && !is_busy(*status)) || tried == options_.tries || !pause(wait)) break;
    wait = std::min(2 * wait, options_.backoff_max);
  }
  count_dropped(batch.size(), std::move(why));
}

bool Exporter::pause(std::chrono::milliseconds how_long) {
  std::unique_lock lock{mutex_};
  return !changed_.wait_for(lock, how_long, [&] { return stopped_; });
}

void Exporter::count_dropped(std::size_t spans, std::string why) {
  const std::lock_guard lock{mutex_};
  counters_.dropped += spans;
  dropped_untold_ += spans;
  why_dropped_ = std::move(why);
}

void Exporter::tell_dropped() {
  Event event{.name = "spans_dropped",
              .severity = Severity::warning,
              .at = std::chrono::system_clock::now(),
              .worker = options_.resource.instance};
  {
    const std::lock_guard lock{mutex_};
    const Clock::time_point now = Clock::now();
    if (dropped_untold_ == 0 || now < tell_from_) return;
    tell_from_ = now + kTellEvery;
    event.fields = {{"spans", std::to_string(std::exchange(dropped_untold_, 0))},
                    {"why", std::exchange(why_dropped_, {})}};
  }
  options_.log(event);
}

}  // namespace faultline::trace
