#pragma once

#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "faultline/store.h"
#include "metrics/samples.h"
#include "service/service.h"
#include "support/database.h"
#include "support/process.h"

namespace faultline::testing {

/// The answer that a call brings, however long it takes.
template <class T>
class Pending {
 public:
  [[nodiscard]] service::Done<T> done() {
    return [state = state_](service::ServiceResult<T> answer) { state->set_value(std::move(answer)); };
  }
  [[nodiscard]] service::ServiceResult<T> get() {
    auto future = state_->get_future();
    if (future.wait_until(soon()) != std::future_status::ready) throw std::runtime_error("no answer came");
    return future.get();
  }

 private:
  std::shared_ptr<std::promise<service::ServiceResult<T>>> state_ =
      std::make_shared<std::promise<service::ServiceResult<T>>>();
};

/// Calls `call(done)` and waits for its answer.
template <class T, class Call>
service::ServiceResult<T> answer_of(const Call& call) {
  Pending<T> pending;
  call(pending.done());
  return pending.get();
}

/// The value, or an exception with the problem's text.
template <class T>
T must(service::ServiceResult<T> answer) {
  if (!answer) {
    throw std::runtime_error(std::string{to_string(answer.error().code)} + ": " + answer.error().message);
  }
  return std::move(*answer);
}

/// A consumer that keeps what it is given. Thread-safe.
class Basket {
 public:
  struct Delivery {
    std::vector<ClaimedJob> jobs;
    std::int64_t sequence = 0;
  };

  [[nodiscard]] service::Deliver deliver() {
    return [this](std::vector<ClaimedJob> jobs, std::int64_t sequence) {
      const std::lock_guard lock{mutex_};
      if (sequence < 0) {
        told_to_go_ = true;
        return true;
      }
      count_ += jobs.size();
      deliveries_.push_back({.jobs = std::move(jobs), .sequence = sequence});
      return true;
    };
  }
  [[nodiscard]] std::size_t count() const {
    const std::lock_guard lock{mutex_};
    return count_;
  }
  [[nodiscard]] bool told_to_go() const {
    const std::lock_guard lock{mutex_};
    return told_to_go_;
  }
  [[nodiscard]] std::vector<Delivery> deliveries() const {
    const std::lock_guard lock{mutex_};
    return deliveries_;
  }
  [[nodiscard]] std::vector<ClaimedJob> jobs() const {
    std::vector<ClaimedJob> all;
    for (const Delivery& delivery : deliveries())
      all.insert(all.end(), delivery.jobs.begin(), delivery.jobs.end());
    return all;
  }
  [[nodiscard]] bool reaches(std::size_t count) const {
    return eventually([&] { return this->count() >= count; });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Delivery> deliveries_;
  std::size_t count_ = 0;
  bool told_to_go_ = false;
};

/// Remembers the names of what was logged. Thread-safe.
class Log {
 public:
  [[nodiscard]] EventSink sink() {
    return [this](const Event& event) {
      const std::lock_guard lock{mutex_};
      lines_.push_back(to_text_line(event));
      names_.emplace_back(event.name);
    };
  }
  [[nodiscard]] std::size_t count(std::string_view name) const {
    const std::lock_guard lock{mutex_};
    return static_cast<std::size_t>(std::ranges::count(names_, name));
  }
  [[nodiscard]] std::string text() const {
    const std::lock_guard lock{mutex_};
    std::string all;
    for (const std::string& line : lines_) all += line + '\n';
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
  std::vector<std::string> lines_;
};

/// A service on a database of the test's own, and a store beside it to see what it has done.
class ServiceTest : public ::testing::Test {
 protected:
  using ms = std::chrono::milliseconds;
  using Code = service::Code;
  using Principal = service::Principal;
  using Scope = service::Scope;

  ServiceTest() : sql_(database_.connect()), store_(must(Store::open({.database = database_.dsn()}))) {}

  [[nodiscard]] service::ServiceOptions options() {
    return {.database = database_.dsn(), .log = log_.sink(), .metrics = metrics_};
  }
  [[nodiscard]] static std::unique_ptr<service::Service> start(service::ServiceOptions options) {
    auto service = service::Service::start(std::move(options));
    if (!eventually([&] { return service->ready(); })) throw std::runtime_error("the service is not ready");
    return service;
  }
  void begin() { begin(options()); }
  /// A metric of the service, all labels together.
  [[nodiscard]] std::uint64_t counted(std::string_view metric) const {
    return static_cast<std::uint64_t>(sum_of(metrics_->text(), metric));
  }
  void begin(service::ServiceOptions options) { service_ = start(std::move(options)); }

  service::ServiceResult<std::vector<Submission>> enqueue(std::vector<NewJob> jobs) {
    return enqueue(who_, std::move(jobs));
  }
  service::ServiceResult<std::vector<Submission>> enqueue(const Principal& who, std::vector<NewJob> jobs) {
    return answer_of<std::vector<Submission>>(
        [&](auto done) { service_->enqueue(who, jobs, std::move(done)); });
  }
  JobId enqueue_one(NewJob job = {}) {
    if (job.kind.empty()) job.kind = "test";
    return must(enqueue({std::move(job)})).at(0).job;
  }
  std::vector<JobId> enqueue_many(std::size_t count, NewJob job = {}) {
    if (job.kind.empty()) job.kind = "test";
    std::vector<JobId> ids;
    for (const Submission& submission : must(store_.enqueue(std::vector<NewJob>(count, job))))
      ids.push_back(submission.job);
    return ids;
  }
  service::ServiceResult<std::vector<Verdict>> settle(std::vector<Settlement> settlements) {
    return answer_of<std::vector<Verdict>>(
        [&](auto done) { service_->settle(who_, settlements, std::move(done)); });
  }
  service::ServiceResult<JobHistory> history(JobId id) { return history(who_, id); }
  service::ServiceResult<JobHistory> history(const Principal& who, JobId id) {
    return answer_of<JobHistory>([&](auto done) { service_->job(who, id, std::move(done)); });
  }
  service::ServiceResult<service::Changed<CancelStatus>> cancel(const Principal& who,
                                                                service::Selection jobs) {
    return answer_of<service::Changed<CancelStatus>>(
        [&](auto done) { service_->cancel(who, jobs, "not wanted", std::move(done)); });
  }
  service::ServiceResult<service::Changed<RequeueStatus>> requeue(const Principal& who,
                                                                  service::Selection jobs) {
    return answer_of<service::Changed<RequeueStatus>>(
        [&](auto done) { service_->requeue(who, jobs, std::move(done)); });
  }
  service::ServiceResult<service::Changed<PurgeStatus>> purge(const Principal& who, service::Selection jobs) {
    return answer_of<service::Changed<PurgeStatus>>(
        [&](auto done) { service_->purge(who, jobs, std::move(done)); });
  }
  service::ServiceResult<service::Page> list(const Principal& who, ListRequest request,
                                             std::string cursor = {}) {
    return answer_of<service::Page>(
        [&](auto done) { service_->list(who, request, cursor, std::move(done)); });
  }
  std::unique_ptr<service::Consumer> consume(Basket& basket, std::string worker = "w",
                                             std::string queue = "default") {
    return must(service_->consume(who_, std::move(queue), std::move(worker), basket.deliver()));
  }
  /// One job, claimed through the service.
  ClaimedJob claim_one(std::string queue = "default") {
    Basket basket;
    auto consumer = consume(basket, "w", std::move(queue));
    consumer->grant(1, 1);
    if (!basket.reaches(1)) throw std::runtime_error("no job was given out");
    return basket.jobs().at(0);
  }

  std::int64_t number(std::string_view query) {
    return must(sql_.exec({"", query}, {}, soon())).get<std::int64_t>(0, 0);
  }
  void script(std::string_view text) { must(sql_.exec_script(text, soon())); }
  JobState state(JobId id) { return must(store_.job(id)).value().state; }

  TestDatabase database_;
  Log log_;
  const std::shared_ptr<metrics::Metrics> metrics_ = std::make_shared<metrics::Metrics>();
  pg::Connection sql_;
  Store store_;
  Principal who_ = Principal::anybody();
  std::unique_ptr<service::Service> service_;
};

}  // namespace faultline::testing
