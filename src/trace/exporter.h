#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "faultline/error.h"
#include "faultline/event.h"
#include "trace/http_post.h"
#include "trace/otlp.h"
#include "trace/span.h"

namespace faultline::trace {

struct ExporterOptions {
  std::string endpoint;  ///< `http://host:4318`; spans go to /v1/traces below it
  Resource resource;
  double sample_ratio = 1.0;  ///< of what belongs to no trace
  EventSink log{};            ///< required
  std::size_t waiting_max = 8'192;
  std::size_t batch_max = 512;
  std::chrono::milliseconds interval{1'000};  ///< the longest that a span waits for others to go with it
  std::chrono::milliseconds timeout{10'000};  ///< of one request
  /// A batch is sent this often when the collector cannot be reached or says that it is busy (429, 502, 503,
  /// 504). The wait between doubles, from the first to the last.
  int tries = 5;
  std::chrono::milliseconds backoff_min{250};
  std::chrono::milliseconds backoff_max{4'000};
};

/// Sends spans to an OpenTelemetry collector, from a thread of its own. What it cannot send in time is
/// dropped, counted, and told of as `spans_dropped` at most once a minute; nobody ever waits for it.
/// Thread-safe.
class Exporter {
 public:
  /// Does not need the collector to be there. An error says what is wrong with the endpoint.
  [[nodiscard]] static Expected<std::unique_ptr<Exporter>> start(ExporterOptions options);
  /// Use `start`.
  Exporter(ExporterOptions options, Url url);
  ~Exporter() { stop(); }
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  void add(Span span);
  [[nodiscard]] double sample_ratio() const { return options_.sample_ratio; }

  /// Sends what waits, until this deadline; what is left then is dropped. After it nothing is sent any more.
  void finish(std::chrono::steady_clock::time_point deadline);

  struct Counters {
    std::uint64_t exported = 0;
    std::uint64_t dropped = 0;
  };
  [[nodiscard]] Counters counters() const;

 private:
  using Clock = std::chrono::steady_clock;

  void stop();
  void run();
  /// Waits for a batch that is due. Empty: there will be none.
  [[nodiscard]] std::vector<Span> next_batch();
  void send(std::vector<Span> batch);
  /// False: it is time to go.
  [[nodiscard]] bool pause(std::chrono::milliseconds how_long);
  void count_dropped(std::size_t spans, std::string why);
  /// Unless it was told of less than a minute ago.
  void tell_dropped();

  const ExporterOptions options_;
  HttpPost post_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::deque<Span> waiting_;
  bool sending_ = false;
  bool finishing_ = false;
  bool stopped_ = false;
  Counters counters_;
  std::uint64_t dropped_untold_ = 0;
  std::string why_dropped_;
  Clock::time_point tell_from_{};

  std::thread thread_;
};

}  // namespace faultline::trace
