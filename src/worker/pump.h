#pragma once

#include <atomic>
#include <vector>

#include "link/link.h"
#include "worker/board.h"
#include "worker/log.h"
#include "worker/meter.h"

namespace faultline::worker {

/// Carries outcomes to the database and brings jobs back: the claimer and the settler in one, so that a
/// settlement and the next claim share a round trip and a commit. Several run, each on a thread of its own;
/// on an idle worker the listener's thread does a round when it hears of new jobs.
class Pump {
 public:
  Pump(link::Link& link, Board& board, const Log& log, const Meter& meter)
      : link_(link), board_(board), log_(log), meter_(meter) {}

  void run();
  /// One round of it: writes the answers, and claims.
  void settle_and_claim(Board::Work& work);
  /// The other side has answered.
  void succeeded();

 private:
  /// Takes the answers. False: the other side cannot be reached, and they are back on the board.
  [[nodiscard]] bool settle(std::vector<Answer>& answers, bool resent);
  bool settle_failed(std::vector<Answer> answers, bool resent, const Error& error);
  void claim(const Board::Claim& claim);
  void claimed(const Board::Claim& claim, link::Link::Claimed claimed);
  /// Tells of each verdict and ends the attempts; what is unknown goes back on the board.
  void take_verdicts(std::vector<Answer> answers, const std::vector<Verdict>& verdicts);
  void tell_settled(const Answer& answer) const;
  void failed(const Error& error);
  [[nodiscard]] ClaimRequest request(const Board::Claim& claim) const {
    return {.queue = std::string{claim.queue}, .worker = log_.worker(), .limit = claim.limit};
  }

  link::Link& link_;
  Board& board_;
  const Log& log_;
  const Meter& meter_;
};

}  // namespace faultline::worker
