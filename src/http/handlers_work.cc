#include <algorithm>
#include <mutex>

#include "codec/encode.h"
#include "http/handlers.h"
#include "service/give_back.h"

namespace faultline::http {
namespace {

using std::chrono::milliseconds;

/// A look at the queue takes some time; a poll that did not even wait for it would never find anything.
constexpr milliseconds kWaitMin{200};

void write_verdicts(JsonWriter& out, const std::vector<Verdict>& verdicts, const std::vector<Lease>& leases) {
  out.key("verdicts").begin_array();
  for (std::size_t i = 0; i < verdicts.size(); ++i) codec::write(out, verdicts[i], leases.at(i));
  out.end_array();
}

std::string verdicts_body(const std::vector<Verdict>& verdicts, const std::vector<Lease>& leases) {
  JsonWriter out;
  out.begin_object();
  write_verdicts(out, verdicts, leases);
  out.end_object();
  return out.take();
}

service::Done<std::vector<Verdict>> answer_verdicts(const Call& call, std::vector<Lease> leases) {
  return answer_with<std::vector<Verdict>>(
      call, [leases = std::move(leases)](const std::vector<Verdict>& verdicts) {
        return Response{.body = verdicts_body(verdicts, leases)};
      });
}

template <class T>
std::vector<Lease> leases_of(const std::vector<T>& items) {
  std::vector<Lease> leases;
  leases.reserve(items.size());
  for (const T& item : items) leases.push_back(item.lease);
  return leases;
}

/// All were refused: 409, with the first one's reason and both tokens where a script finds them at once.
Response all_stale(const std::vector<Verdict>& verdicts, const std::vector<Lease>& leases) {
  const Stale& first = verdicts.front().stale;
  const service::Problem problem{
      .code = service::Code::stale,
      .message = verdicts.size() == 1 ? "the lease is no longer the job's current one: " +
                                            std::string{faultline::to_string(first.reason)}
                                      : "no lease is its job's current one any more",
      .hint = "stop working on it: nothing of this attempt can be committed any more",
      .job = leases.front().job};
  return problem_response(problem, [&](JsonWriter& out) {
    out.key("reason").string(faultline::to_string(first.reason));
    out.key("token").integer(leases.front().token.value);
    if (first.current_token) out.key("current_token").integer(first.current_token->value);
    write_verdicts(out, verdicts, leases);
  });
}

/// A long poll: the first delivery answers it. Shared by the connection's thread and the service's.
class LongPoll {
 public:
  explicit LongPoll(const Call& call) : service_(call.service), who_(call.who), exchange_(call.exchange) {}

  bool deliver(std::vector<ClaimedJob> jobs) {
    if (!finish()) return false;
    std::vector<service::JobInTransit> sent;
    for (const ClaimedJob& job : jobs) sent.push_back(service::in_transit(job));
    Response response{.body = codec::list_body("jobs", jobs)};
    response.lost = [&service = service_, who = who_, sent = std::move(sent)](bool begun) mutable {
      auto releases =
          give_back(std::move(sent), begun ? service::Transit::begun : service::Transit::not_begun);
      if (releases.empty()) return;
      service.settle(who, std::move(releases), [](const service::ServiceResult<std::vector<Verdict>>&) {});
    };
    exchange_->respond(std::move(response));
    return true;
  }
  void end() {
    if (finish()) exchange_->respond({.body = R"({"jobs":[]})"});
  }
  void refuse(const service::Problem& why) {
    if (finish()) exchange_->respond(problem_response(why));
  }

 private:
  /// True for the one who gets to answer.
  bool finish() {
    const std::scoped_lock lock{mutex_};
    return !std::exchange(finished_, true);
  }

  service::Service& service_;
  service::Principal who_;
  std::shared_ptr<HttpExchange> exchange_;
  std::mutex mutex_;
  bool finished_ = false;
};

}  // namespace

void post_claim(const Call& call) {
  auto claim = accepted(call, decode_claim(call.request.body, call.limits()));
  if (!claim) return;
  const auto poll = std::make_shared<LongPoll>(call);
  auto consumer = accepted(
      call, call.service.consume(
                call.who, std::move(claim->queue), std::move(claim->worker),
                [poll](std::vector<ClaimedJob> jobs, std::int64_t) { return poll->deliver(std::move(jobs)); },
                [poll](const service::Problem& why) { poll->refuse(why); }));
  if (!consumer) return;
  (*consumer)->grant(static_cast<std::int64_t>(claim->limit), 1);
  call.exchange->keep(std::move(*consumer));
  call.exchange->wait(std::max(claim->wait, kWaitMin), [poll] { poll->end(); });
}

void post_heartbeat(const Call& call) {
  auto beat = accepted(call, decode_heartbeat(call.request.body, call.limits()));
  if (!beat) return;
  call.service.heartbeat(call.who, std::move(beat->leases), beat->extend,
                         answer_with<std::vector<Beat>>(call, [](const std::vector<Beat>& beats) {
                           return Response{.body = codec::list_body("beats", beats)};
                         }));
}

void post_settle(const Call& call) {
  auto settlements = accepted(call, decode_settlements(call.request.body, call.limits()));
  if (!settlements) return;
  std::vector<Lease> leases = leases_of(*settlements);
  call.service.settle(call.who, std::move(*settlements),
                      answer_with<std::vector<Verdict>>(
                          call, [leases = std::move(leases)](const std::vector<Verdict>& verdicts) {
                            const auto is_stale = [](const Verdict& verdict) {
                              return verdict.status == Verdict::Status::stale;
                            };
                            if (!verdicts.empty() && std::ranges::all_of(verdicts, is_stale))
                              return all_stale(verdicts, leases);
                            return Response{.body = verdicts_body(verdicts, leases)};
                          }));
}

void post_progress(const Call& call) {
  auto reports = accepted(call, decode_progress(call.request.body, call.limits()));
  if (!reports) return;
  auto done = answer_verdicts(call, leases_of(*reports));
  call.service.progress(call.who, std::move(*reports), std::move(done));
}

void post_check(const Call& call) {
  auto leases = accepted(call, decode_leases(call.request.body, call.limits()));
  if (!leases) return;
  auto done = answer_verdicts(call, *leases);
  call.service.check(call.who, std::move(*leases), std::move(done));
}

void post_resolve(const Call& call) {
  auto leases = accepted(call, decode_leases(call.request.body, call.limits()));
  if (!leases) return;
  using Kinds = std::vector<std::optional<Outcome::Kind>>;
  call.service.resolve(call.who, std::move(*leases), answer_with<Kinds>(call, [](const Kinds& kinds) {
                         JsonWriter out;
                         out.begin_object();
                         out.key("resolved").begin_array();
                         for (const auto& kind : kinds) {
                           out.begin_object();
                           out.key("committed").boolean(kind.has_value());
                           if (kind) out.key("outcome").string(faultline::to_string(*kind));
                           out.end_object();
                         }
                         out.end_array();
                         out.end_object();
                         return Response{.body = out.take()};
                       }));
}

void post_effects_begin(const Call& call) {
  auto keys = accepted(call, decode_effect_keys(call.request.body, call.limits()));
  if (!keys) return;
  const bool all_named = std::ranges::none_of(*keys, [](const EffectKey& key) { return key.call.is_nil(); });
  auto answer = answer_with<std::vector<Effect>>(
      call,
      [](const std::vector<Effect>& effects) {
        return Response{.body = codec::list_body("effects", effects)};
      },
      all_named ? SentAgain::is_the_same : SentAgain::is_another);
  call.service.begin_effects(call.who, std::move(*keys), std::move(answer));
}

void post_effects_record(const Call& call) {
  auto results = accepted(call, decode_effect_results(call.request.body, call.limits()));
  if (!results) return;
  call.service.record_effects(call.who, std::move(*results),
                              answer_with<std::vector<Effect>>(call, [](const std::vector<Effect>& effects) {
                                return Response{.body = codec::list_body("effects", effects)};
                              }));
}

void post_effects_forget(const Call& call) {
  auto keys = accepted(call, decode_effect_keys(call.request.body, call.limits()));
  if (!keys) return;
  auto done = answer_verdicts(call, leases_of(*keys));
  call.service.forget_effects(call.who, std::move(*keys), std::move(done));
}

}  // namespace faultline::http
