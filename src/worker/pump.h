#pragma once

#include <atomic>
#include <vector>

#include "faultline/store.h"
#include "worker/board.h"
#include "worker/log.h"

namespace faultline::worker {

/// Carries outcomes to the database and brings jobs back: the claimer and the settler in one, so that a
/// settlement and the next claim share a round trip and a commit. Several run, each on a thread of its own;
/// on an idle worker the listener's thread does a round when it hears of new jobs.
class Pump {
 public:
  Pump(Store& store, Board& board, const Log& log) : store_(store), board_(board), log_(log) {}

  void run();
  /// One round of it: writes the answers, and claims.
  void settle_and_claim(Board::Work& work);

 private:
  /// Answers whose fate is not known are looked up in the ledger; what was committed is taken out.
  [[nodiscard]] bool resolve(std::vector<Answer>& answers);
  /// False: the database cannot be reached, and the answers are back on the board.
  [[nodiscard]] bool settle(std::vector<Answer>& answers);
  bool settle_failed(std::vector<Answer> answers, const Error& error);
  void claim(const Board::Claim& claim);
  /// Tells of each verdict and ends the attempts; what is unknown goes back on the board.
  void take_verdicts(std::vector<Answer> answers, const std::vector<Verdict>& verdicts);
  void tell_settled(const Answer& answer) const;
  void failed(const Error& error);
  void succeeded();
  [[nodiscard]] ClaimRequest request(const Board::Claim& claim) const {
    return {.queue = std::string{claim.queue}, .worker = log_.worker(), .limit = claim.limit};
  }

  Store& store_;
  Board& board_;
  const Log& log_;
};

}  // namespace faultline::worker
