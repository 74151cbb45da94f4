#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "remote/server_connections.h"

namespace faultline::remote {

/// The jobs of one queue, as a server sends them: a stream with credit, opened again whenever it ends, and an
/// inbox for what has come and was not taken yet. Thread-safe.
class JobSubscription {
 public:
  struct Options {
    std::string queue;
    std::string worker;
  };
  /// Called from gRPC's threads, under the subscription's lock: they only note it.
  struct Callbacks {
    std::function<void()> arrived;  ///< there is something in the inbox, or to be given back
    std::function<void()> opened;   ///< there is a stream again
    std::function<void()> changed;  ///< `tend` has something to do
  };
  struct Arrived {
    ClaimedJob job;
    Clock::time_point since;  ///< a moment before its lease began
    Clock::time_point at;     ///< when it came
  };

  JobSubscription(Options options, ServerConnections& connections, Callbacks callbacks);
  JobSubscription(const JobSubscription&) = delete;
  JobSubscription& operator=(const JobSubscription&) = delete;
  ~JobSubscription();

  [[nodiscard]] const std::string& queue() const { return options_.queue; }

  // For claims. One begins, and ends by taking what is there.

  /// Asks for this many jobs, besides what other claims under way ask for.
  void begin_claim(std::size_t limit);
  /// At most this many of those that have come. What is missing may still come, and is announced.
  [[nodiscard]] std::vector<Arrived> end_claim(std::size_t limit);
  /// What was taken and cannot be handed out yet.
  void put_back(std::vector<Arrived> jobs);
  /// No more than this many are wanted, besides what claims under way ask for.
  void want(std::size_t limit);

  // For the thread that keeps it going.

  /// Does what is due, and says when the next thing will be.
  [[nodiscard]] Clock::time_point tend(Clock::time_point now);
  /// Jobs that nobody took in time, to be given back.
  [[nodiscard]] std::vector<Arrived> unwanted();
  /// Ends the stream so that nothing which the server has sent is lost; whatever comes is unwanted.
  void stop();
  /// Ends what `stop` left.
  void cancel();
  void wait_until_ended();

  /// Why there is no stream now, if there is none.
  [[nodiscard]] std::optional<Error> trouble() const;

 private:
  class Stream;

  // All of these are called with the lock held.
  void open(Clock::time_point now);
  void retire(Clock::time_point now);
  void set_credit(std::size_t credit);
  void wait_to_open(const Stream& last, Clock::time_point now);
  void take_in(Stream& stream, pb::StreamJobsResponse& message);
  void stream_opened(Stream& stream);
  void stream_ended(Stream& stream, const grpc::Status& status);
  /// The connection is not good; the thread that keeps the subscription going leaves it.
  void leave(const std::shared_ptr<ServerConnection>& connection);
  [[nodiscard]] Clock::duration refresh_interval() const;

  const Options options_;
  ServerConnections& connections_;
  const Callbacks callbacks_;

  mutable std::mutex mutex_;  // guards all below, and the streams
  std::condition_variable changed_;
  std::shared_ptr<Stream> current_;
  std::vector<std::shared_ptr<Stream>> retired_;
  std::vector<std::shared_ptr<Stream>> ended_;  ///< gRPC is done with them
  std::deque<Arrived> inbox_;
  std::vector<Arrived> unwanted_;
  std::size_t credit_ = 0;    ///< jobs that the server may send from now on
  std::size_t claiming_ = 0;  ///< asked for by claims under way
  std::chrono::milliseconds shortest_ttl_{30'000};
  std::optional<Error> trouble_;
  std::shared_ptr<ServerConnection> to_leave_;
  Clock::time_point open_at_{};
  std::chrono::milliseconds wait_{};
  std::minstd_rand jitter_{std::random_device{}()};
  bool stopped_ = false;
};

}  // namespace faultline::remote
