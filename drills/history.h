#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "drills/schedule.h"
#include "faultline/event.h"
#include "faultline/job.h"

namespace faultline::drills {

/// How a call on a lease was answered.
struct Reply {
  Verdict::Status status = Verdict::Status::committed;
  Stale stale{};        ///< when stale
  std::string error{};  ///< when unknown
};

/// One write of a worker whose lease was lost, and what it was told.
struct LateWrite {
  Lease lease;
  Verb verb = Verb::complete;
  Comeback comeback{};
  Reply reply{};
};

/// An effect that was begun under a good lease. None is ever recorded in a race.
struct BegunEffect {
  std::string key;
  Lease lease;
};

/// What was done in one race, and what the calls answered.
struct RaceHistory {
  Schedule schedule;
  JobId job;
  std::vector<Lease> leases;  ///< in the order of the claims
  std::vector<LateWrite> late_writes;
  std::vector<BegunEffect> effects;
  /// Absent: a late write was accepted, and with it the race was over.
  std::optional<Reply> finish{};
  std::string result;  ///< that the finisher gave
  std::vector<Event> events;
};

/// What the database's tables say of a race's job. Read from the tables themselves: the store is on trial.
struct Findings {
  struct LedgerRow {
    FenceToken token;
    std::optional<Uuid> lease_id{};
    std::string outcome;
    std::string state;
    std::string worker;
    std::string result;
  };
  struct LiveRow {
    std::string state;
    FenceToken token;
  };
  struct Evidence {
    std::string verb;
    std::string reason;
    FenceToken token;
    Uuid lease_id;
    std::string worker;
    std::optional<FenceToken> current_token{};
    std::optional<std::string> current_worker{};
    std::string current_state;
  };
  struct EffectRow {
    std::string key;
    Uuid lease_id;
    bool recorded = false;
  };

  std::vector<LedgerRow> ledger;  ///< in the order of tokens
  std::vector<LiveRow> live;
  std::vector<Evidence> evidence;
  std::vector<EffectRow> effects;
  std::vector<std::string> writes;  ///< who wrote in a fenced transaction
};

inline constexpr std::string_view kRaceKind = "race";

/// What fenced transactions of a race write into, beside Faultline's own tables.
inline constexpr std::string_view kCreateWrites =
    "CREATE TABLE public.race_writes (job uuid NOT NULL, worker text NOT NULL)";
inline constexpr std::string_view kInsertWrite =
    "INSERT INTO public.race_writes (job, worker) VALUES ($1::uuid, $2)";

/// The effect that a worker begins while its lease is good, and tries to record when it is not.
[[nodiscard]] std::string effect_key(std::size_t worker);
/// The one that it tries to begin when its lease is lost.
[[nodiscard]] std::string late_effect_key(std::size_t worker);

}  // namespace faultline::drills
