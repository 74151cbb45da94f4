#include "cli/up/demo.h"

#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/events.h"
#include "faultline/store.h"
#include "faultline/watchdog.h"
#include "faultline/worker.h"
#include "worker/log.h"

namespace faultline::cli {
namespace {

using std::chrono::milliseconds;

constexpr const char* kQueue = "demo";
constexpr const char* kRaceQueue = "demo-race";
constexpr milliseconds kJobEvery{1'500};
constexpr std::int64_t kBacklogMax = 100;
constexpr milliseconds kRaceEvery{60'000};
constexpr milliseconds kRaceTtl{2'000};
constexpr milliseconds kRetention{3'600'000};
constexpr std::size_t kDeadKept = 20;

/// False: it is time to stop.
bool pause(const std::stop_token& stop, milliseconds how_long) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock{mutex};
  never.wait_for(lock, stop, how_long, [] { return false; });
  return !stop.stop_requested();
}

// The demo's handlers: they take time as if they did something. What is to fail says so in its payload.

void take_time(const Context& context, milliseconds how_long) {
  if (!pause(context.stop_token(), how_long)) context.throw_if_stopped();
}

void fail_if_told(const Context& context, const char* error) {
  const auto payload = nlohmann::json::parse(context.payload(), nullptr, false);
  if (payload.is_object() && context.attempt() <= payload.value("fails", 0)) throw Fail{error};
}

std::string send_email(Context& context) {
  take_time(context, milliseconds{150});
  fail_if_told(context, "451 the mail server is busy, try again later");
  return R"({"accepted":true})";
}

std::string resize_image(Context& context) {
  for (int done = 1; done <= 4; ++done) {
    take_time(context, milliseconds{200});
    context.progress(done / 4.0, "tiles");
  }
  return R"({"width":640,"height":480})";
}

std::string charge_card(Context& context) {
  // Once, however many attempts it takes.
  const std::string charge = context.once("charge", [&] { return "ch_" + context.effect_id("charge"); });
  take_time(context, milliseconds{100});
  fail_if_told(context, "the receipt could not be printed");
  return nlohmann::json{{"charge", charge}}.dump();
}

Bury import_feed(Context& context) {
  take_time(context, milliseconds{100});
  return {"line 3 of the feed is not valid, and will not be next time"};
}

NewJob make_job(std::size_t number) {
  const auto job = [](std::string kind, const nlohmann::json& payload) {
    return NewJob{.queue = kQueue, .kind = std::move(kind), .payload = payload.dump()};
  };
  if (number % 20 == 10) return job("import_feed", {{"url", "https://example.com/feed"}});
  switch (number % 4) {
    case 1:
      return job("resize_image", {{"image", "harbour-" + std::to_string(number) + ".png"}});
    case 2:
      return job("charge_card", {{"order", number}, {"cents", 1'990}, {"fails", number % 12 == 6 ? 1 : 0}});
    default:
      return job("send_email", {{"to", "ada@example.com"}, {"fails", number % 8 == 3 ? 1 : 0}});
  }
}

Settlement success(const ClaimedJob& job) {
  return {.lease = job.lease, .outcome = Outcome::success(R"({"by":")" + job.lease.worker + "\"}")};
}

class RunningDemo final : public Demo {
 public:
  RunningDemo(DemoOptions options, Store store, Watchdog watchdog)
      : options_(std::move(options)),
        store_(std::move(store)),
        watchdog_(std::move(watchdog)),
        worker_({.database = options_.database,
                 .name = "demo-worker",
                 .queues = {{.queue = kQueue}},
                 .slots = 4,
                 .drain_max = milliseconds{5'000},
                 .watchdog = false,
                 .log = options_.log,
                 .log_from = Severity::debug}) {
    worker_.handle("send_email", send_email)
        .handle("resize_image", resize_image)
        .handle("charge_card", charge_card)
        .handle("import_feed", import_feed);
  }
  ~RunningDemo() override { RunningDemo::drain(); }

  faultline::Expected<void> begin() {
    for (const char* queue : {kQueue, kRaceQueue}) {
      auto set = store_.set_queue(queue, {.attempts_max = 5,
                                          .backoff_base = milliseconds{queue == kQueue ? 1'000 : 0},
                                          .backoff_max = milliseconds{5'000},
                                          .retention = kRetention});
      if (!set) return set;
    }
    if (auto started = worker_.start(); !started) return started;
    producer_ = std::jthread{[this](const std::stop_token& stop) { produce(stop); }};
    racer_ = std::jthread{[this](const std::stop_token& stop) { hold_races(stop); }};
    return {};
  }

  void drain() override {
    producer_.request_stop();
    racer_.request_stop();
    worker_.drain();
    if (producer_.joinable()) producer_.join();
    if (racer_.joinable()) racer_.join();
  }
  void hurry() override { worker_.hurry(); }

 private:
  // Nothing here complains when the database is away: the worker and the server do, and all of them wait for
  // it.

  void produce(const std::stop_token& stop) {
    for (std::size_t number = 0; pause(stop, kJobEvery); ++number) {
      const auto counts = store_.counts(kQueue);
      if (counts && !counts->empty() && counts->front().available < kBacklogMax)
        static_cast<void>(store_.enqueue(make_job(number)));
    }
  }

  void hold_races(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto raced = race(stop);
      if (!stop.stop_requested()) purge_old_dead();
      if (raced && options_.on_race) options_.on_race(*raced);
      if (!pause(stop, raced ? kRaceEvery : milliseconds{5'000})) return;
    }
  }

  /// The story that the fence is for. The job, if it went as it should.
  std::optional<JobId> race(const std::stop_token& stop) {
    const auto added = store_.enqueue(
        {.queue = kRaceQueue, .kind = "charge_card", .payload = R"({"cents":4200})", .lease_ttl = kRaceTtl});
    if (!added) return std::nullopt;
    const auto stalled = claim(added->job, "demo-stalled", stop);
    if (!stalled || !wait_for_expiry(added->job, stop)) return std::nullopt;
    const auto rescuer = claim(added->job, "demo-rescuer", stop);
    if (!rescuer) return std::nullopt;
    // It must not lose the job as well, on a machine that is short of breath.
    static_cast<void>(store_.heartbeat({&rescuer->lease, 1}, milliseconds{30'000}));
    if (!pause(stop, milliseconds{300})) return std::nullopt;
    if (!settled(*rescuer)) return std::nullopt;
    return settled(*stalled) ? std::nullopt : std::optional{added->job};
  }

  /// Other jobs in the queue are left over from another run, and are ended on the way.
  std::optional<ClaimedJob> claim(JobId id, const std::string& worker, const std::stop_token& stop) {
    for (int looks = 0; looks < 100; ++looks) {
      const auto claimed = store_.claim({.queue = kRaceQueue, .worker = worker});
      if (!claimed) return std::nullopt;
      for (const ClaimedJob& job : *claimed) {
        if (job.lease.job != id) {
          static_cast<void>(settled(job));
          continue;
        }
        tell(Severity::debug, "lease_acquired", job, {});
        return job;
      }
      if (claimed->empty() && !pause(stop, milliseconds{100})) return std::nullopt;
    }
    return std::nullopt;
  }

  bool wait_for_expiry(JobId id, const std::stop_token& stop) {
    while (pause(stop, milliseconds{100})) {
      const auto states = store_.states({&id, 1});
      if (states && states->front() != JobState::running) return states->front().has_value();
    }
    return false;
  }

  bool settled(const ClaimedJob& job) {
    const Settlement settlement = success(job);
    const auto verdicts = store_.settle({&settlement, 1});
    if (!verdicts) return false;
    const Verdict& verdict = verdicts->front();
    if (verdict.committed()) tell(Severity::debug, "job_settled", job, {{"outcome", "succeeded"}});
    if (verdict.status == Verdict::Status::stale) {
      auto fields = fields_of(verdict.stale);
      fields.insert(fields.begin(), {"verb", "succeeded"});
      tell(Severity::warning, "stale_write_blocked", job, std::move(fields));
    }
    return verdict.committed();
  }

  void tell(Severity severity, std::string_view name, const ClaimedJob& job,
            worker::Log::Fields fields) const {
    worker::Log{options_.log, Severity::debug, job.lease.worker}.tell(severity, name, job, std::move(fields));
  }

  /// Retention is for jobs that have ended; dead ones wait for a person, and here nobody comes.
  void purge_old_dead() {
    const auto dead = store_.list({.queue = kQueue, .state = JobState::dead, .limit = 1'000});
    if (!dead || dead->jobs.size() <= kDeadKept) return;
    std::vector<JobId> old;
    for (std::size_t i = kDeadKept; i < dead->jobs.size(); ++i) old.push_back(dead->jobs[i].id);
    static_cast<void>(store_.purge_dead(old, "demo"));
  }

  const DemoOptions options_;
  Store store_;
  Watchdog watchdog_;
  Worker worker_;
  std::jthread producer_;
  std::jthread racer_;
};

}  // namespace

faultline::Expected<std::unique_ptr<Demo>> Demo::start(DemoOptions options) {
  auto store = Store::open({.database = options.database, .application_name = "faultline demo"});
  if (!store) return std::unexpected(std::move(store.error()));
  // Quicker than usual, so that nobody waits for the race.
  auto watchdog = Watchdog::start(
      {.database = options.database, .tick = milliseconds{500}, .log = options.log, .name = "watchdog"});
  if (!watchdog) return std::unexpected(std::move(watchdog.error()));
  auto demo = std::make_unique<RunningDemo>(std::move(options), std::move(*store), std::move(*watchdog));
  if (auto begun = demo->begin(); !begun) return std::unexpected(std::move(begun.error()));
  return demo;
}

}  // namespace faultline::cli
