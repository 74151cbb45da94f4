#include "drills/schedule.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "drills/random.h"

namespace faultline::drills {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::array<std::string_view, kVerbs> kVerbNames{
    "complete", "fail",     "snooze", "release",      "bury",          "cancel",        "heartbeat",
    "extend",   "progress", "check",  "begin_effect", "record_effect", "forget_effect", "transact"};
constexpr std::array<std::string_view, kTimings> kTimingNames{
    "against_claim", "while_running",  "before_sweep", "against_sweep",
    "after_sweep",   "against_commit", "after_commit"};

Tenure draw_tenure(Random& random) {
  // To the very moment of the expiry, just past it, or any time after it.
  const std::array<std::int64_t, 3> overshoots{0, 1, random.between(2, 3'600'000'000)};
  return {.beats = static_cast<int>(random.percent(40) ? random.between(1, 3) : 0),
          .reports_progress = random.percent(30),
          .begins_effect = random.percent(40),
          .overshoot = microseconds{overshoots[random.below(overshoots.size())]},
          .swept_by_successor = random.percent(50)};
}

/// Where a worker that lost its lease may come back.
std::vector<std::pair<std::size_t, Timing>> openings(std::size_t worker, std::size_t finisher) {
  std::vector<std::pair<std::size_t, Timing>> found;
  for (std::size_t tenure = worker; tenure <= finisher; ++tenure) {
    if (tenure > worker) {
      found.emplace_back(tenure, Timing::against_claim);
      found.emplace_back(tenure, Timing::while_running);
    }
    if (tenure < finisher) {
      for (const Timing timing : {Timing::before_sweep, Timing::against_sweep, Timing::after_sweep})
        found.emplace_back(tenure, timing);
    } else {
      for (const Timing timing : {Timing::against_commit, Timing::after_commit})
        found.emplace_back(tenure, timing);
    }
  }
  return found;
}

Comeback draw_comeback(Random& random, std::size_t worker, std::size_t finisher) {
  const auto timings = openings(worker, finisher);
  const auto [tenure, timing] = timings[random.below(timings.size())];
  Comeback comeback{.worker = worker, .tenure = tenure, .timing = timing};
  if (random.percent(30)) {
    constexpr std::array kFirst{Verb::heartbeat, Verb::extend, Verb::progress, Verb::check};
    comeback.verbs.push_back(kFirst[random.below(kFirst.size())]);
  }
  comeback.verbs.push_back(static_cast<Verb>(random.below(kVerbs)));
  if (is_concurrent(timing) && random.percent(70))
    comeback.offset = microseconds{random.between(-1'500, 500)};
  return comeback;
}

std::vector<Comeback> draw_comebacks(Random& random, std::size_t finisher) {
  std::vector<Comeback> comebacks;
  for (std::size_t worker = 0; worker < finisher; ++worker) {
    const int times = random.percent(25) ? 2 : 1;
    for (int i = 0; i < times; ++i) comebacks.push_back(draw_comeback(random, worker, finisher));
  }
  std::ranges::stable_sort(comebacks, {}, [](const Comeback& c) { return std::tuple{c.tenure, c.timing}; });
  return comebacks;
}

Schedule the_story() {
  return {
      .tenures = {{.overshoot = milliseconds{1'500}}, {}},
      .comebacks = {{.worker = 0, .tenure = 1, .timing = Timing::after_commit, .verbs = {Verb::complete}}}};
}

}  // namespace

std::string_view to_string(Verb verb) { return kVerbNames.at(static_cast<std::size_t>(verb)); }
std::string_view to_string(Timing timing) { return kTimingNames.at(static_cast<std::size_t>(timing)); }

std::string_view name_in_evidence(Verb verb) {
  switch (verb) {
    case Verb::begin_effect:
    case Verb::record_effect:
    case Verb::forget_effect:
      return "effect";
    case Verb::transact:
      return "complete";
    default:
      return to_string(verb);
  }
}

bool is_concurrent(Timing timing) {
  return timing == Timing::against_claim || timing == Timing::against_sweep ||
         timing == Timing::against_commit;
}

Schedule make_schedule(std::uint64_t seed) {
  if (seed == 0) return the_story();
  Random random{seed};
  Schedule schedule{.seed = seed,
                    .lease_ttl = milliseconds{random.between(100, 600'000)},
                    .priority = static_cast<int>(random.between(0, 9))};
  schedule.tenures.resize(random.percent(30) ? 3 : 2);
  for (Tenure& tenure : schedule.tenures) tenure = draw_tenure(random);
  constexpr std::array kFinishes{Finish::complete, Finish::complete, Finish::exchange, Finish::transact};
  schedule.finish = kFinishes[random.below(kFinishes.size())];
  schedule.comebacks = draw_comebacks(random, schedule.finisher());
  return schedule;
}

std::uint64_t seed_of_race(std::uint64_t seed, std::size_t number) {
  if (number == 0) return seed;
  Random random{seed ^ (0xd1342543de82ef95U * number)};
  return random.next();
}

std::string worker_name(std::size_t worker) { return std::string(1, static_cast<char>('A' + worker)); }

std::string describe(const Schedule& schedule) {
  std::string text = std::to_string(schedule.tenures.size()) + " workers";
  for (const Comeback& comeback : schedule.comebacks) {
    text += "; " + worker_name(comeback.worker) + " comes back " + std::string{to_string(comeback.timing)} +
            " of " + worker_name(comeback.tenure) + " with ";
    for (const Verb verb : comeback.verbs)
      text += std::string{verb == comeback.verbs.front() ? "" : ", "} + std::string{to_string(verb)};
  }
  return text;
}

std::vector<ExpectedRefusal> expected_refusals(const Comeback& comeback) {
  const std::size_t tenure = comeback.tenure;
  const auto reason_under = [&](std::size_t newest) {
    return newest == comeback.worker ? StaleReason::lease_expired : StaleReason::token_mismatch;
  };
  const ExpectedRefusal held{.reason = reason_under(tenure), .newest = tenure, .holder = tenure};
  const auto swept = [&](std::size_t of) {
    return ExpectedRefusal{.reason = reason_under(of), .newest = of};
  };
  switch (comeback.timing) {
    case Timing::against_claim:
      return {swept(tenure - 1), held};
    case Timing::against_sweep:
      return {held, swept(tenure)};
    case Timing::after_sweep:
      return {swept(tenure)};
    case Timing::while_running:
    case Timing::before_sweep:
    case Timing::against_commit:
    case Timing::after_commit:
      break;
  }
  return {held};
}

}  // namespace faultline::drills
