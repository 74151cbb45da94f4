#include "worker/store_link.h"

#include <algorithm>

#include "store/listener.h"

namespace faultline::worker {
namespace {

std::string application(const StoreLinkOptions& options) { return "faultline worker " + options.worker; }

class StoreLink : public Link {
 public:
  StoreLink(const StoreLinkOptions& options, Store runtime, Store handlers)
      : options_(options), runtime_(std::move(runtime)), handlers_(std::move(handlers)) {}

  std::optional<Error> check_queues(std::span<const std::string> names) override {
    const auto queues = runtime_.queues();
    if (!queues) return queues.error();
    for (const std::string& name : names) {
      if (std::ranges::find(*queues, name, &Queue::name) == queues->end()) {
        return Error{.code = ErrorCode::unknown_queue,
                     .message = "there is no queue \"" + name + "\"",
                     .hint = "make it first (Client::set_queue), or check the name"};
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] bool through_server() const override { return false; }

  Expected<Claimed> claim(const ClaimRequest& request) override {
    const Clock::time_point sent_at = Clock::now();
    auto jobs = runtime_.claim(request);
    if (!jobs) return std::unexpected(std::move(jobs.error()));
    return still_good(std::move(*jobs), sent_at);
  }
  void want(std::string_view, std::size_t) override {}
  Expected<Exchange> exchange(std::span<const Settlement> settlements, const ClaimRequest& request) override {
    const Clock::time_point sent_at = Clock::now();
    auto done = runtime_.exchange(settlements, request);
    if (!done) return std::unexpected(std::move(done.error()));
    return Exchange{.verdicts = std::move(done->verdicts),
                    .claimed = still_good(std::move(done->claimed), sent_at)};
  }
  Expected<std::vector<Verdict>> settle(std::span<const Settlement> settlements) override {
    return runtime_.settle(settlements);
  }
  Expected<std::vector<std::optional<Outcome::Kind>>> resolve(std::span<const Lease> leases) override {
    return runtime_.resolve(leases);
  }
  Expected<std::vector<Beat>> heartbeat(std::span<const Lease> leases,
                                        std::span<const Stage> stages) override {
    return runtime_.heartbeat(leases, std::nullopt, stages);
  }

  Expected<std::vector<Verdict>> progress(std::span<const ProgressReport> reports) override {
    return handlers_.progress(reports);
  }
  Expected<std::vector<Verdict>> check(std::span<const Lease> leases) override {
    return handlers_.check(leases);
  }
  Expected<std::vector<Beat>> extend(std::span<const Lease> leases, std::chrono::milliseconds by) override {
    return handlers_.heartbeat(leases, by);
  }
  Expected<std::vector<Effect>> begin_effects(std::span<const EffectKey> keys) override {
    return handlers_.begin_effects(keys);
  }
  Expected<std::vector<Effect>> record_effects(std::span<const EffectResult> results) override {
    return handlers_.record_effects(results);
  }
  Expected<std::vector<Verdict>> forget_effects(std::span<const EffectKey> keys) override {
    return handlers_.forget_effects(keys);
  }
  Expected<Verdict> transact(const Lease& lease, const std::function<Outcome(Transaction&)>& body) override {
    return handlers_.transact(lease, body);
  }

  void listen(const std::vector<std::string>&, Callbacks callbacks) override {
    listener_.emplace(options_.database, application(options_) + " listener",
                      store::Listener::Callbacks{.announced = std::move(callbacks.announced),
                                                 .connected = std::move(callbacks.connected)});
  }
  void give_up() override {
    runtime_.give_up();
    handlers_.give_up();
  }
  void stop_claims() override {}
  void stop_listening() override { listener_.reset(); }

 private:
  /// The call may have waited for the database, and its leases began when it was carried out. On this
  /// worker's clock they count from before the call, since more is not known: what would be old by that is
  /// renewed, and counts from now. What cannot be renewed runs out.
  Claimed still_good(std::vector<ClaimedJob> jobs, Clock::time_point sent_at) {
    const Clock::time_point now = Clock::now();
    const auto is_old = [&](const ClaimedJob& job) { return sent_at + job.lease_ttl / 3 <= now; };
    if (std::ranges::none_of(jobs, is_old)) return {.jobs = std::move(jobs), .since = sent_at};
    std::vector<Lease> leases;
    for (const ClaimedJob& job : jobs) leases.push_back(job.lease);
    const auto beats = runtime_.heartbeat(leases);
    if (!beats) return {.jobs = std::move(jobs), .since = sent_at};
    Claimed renewed{.jobs = {}, .since = now};
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if ((*beats)[i].status == Beat::Status::renewed) renewed.jobs.push_back(std::move(jobs[i]));
    }
    return renewed;
  }

  const StoreLinkOptions options_;
  // What handlers do with the database, however slowly, must not hold up claims and settlements.
  Store runtime_;
  Store handlers_;
  std::optional<store::Listener> listener_;
};

}  // namespace

Expected<std::unique_ptr<Link>> open_store_link(const StoreLinkOptions& options) {
  auto runtime = Store::open({.database = options.database,
                              .application_name = application(options),
                              .connections_max = options.connections,
                              .call_timeout = options.call_timeout,
                              .on_reached = options.on_reached});
  if (!runtime) return std::unexpected(std::move(runtime.error()));
  const std::size_t for_handlers = std::max<std::size_t>(options.handler_connections, 1);
  auto handlers = Store::open({.database = options.database,
                               .application_name = application(options) + " handlers",
                               .connections_max = for_handlers,
                               .transactions_max = for_handlers});
  if (!handlers) return std::unexpected(std::move(handlers.error()));
  return std::make_unique<StoreLink>(options, std::move(*runtime), std::move(*handlers));
}

}  // namespace faultline::worker
