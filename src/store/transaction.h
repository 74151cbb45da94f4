#pragma once

#include "store/claim.h"

namespace faultline::store {

/// The fenced transaction, step by step:
///
///   1. BEGIN, the transaction's number, and a look whether the lease is still good: one round trip. A stale
///      attempt is refused before it works. The job's row is not locked, so heartbeats pass.
///   2. `body`, with the database's own planner settings.
///   3. If that same transaction is still open and has not failed: the store's settings, the number again,
///   and
///      the statement that settles. It decides by (token, lease id, expiry), exactly as `settle` does.
///   4. COMMIT if and only if that statement named the job; else ROLLBACK, and the refusal is judged, with
///   evidence.
///   5. A lost answer to COMMIT is resolved from the ledger, under the job's row lock, which that
///   transaction
///      held until it ended one way or the other.
///
/// Whatever left nothing behind, such as a deadlock or a lost connection, leads back to step 1, until the
/// store's call timeout has passed since it first did. Each statement may take as long as the call timeout;
/// the body as a whole as long as it takes.
[[nodiscard]] Expected<Verdict> transact(Backend& backend, Claims& claims, const Lease& lease,
                                         const std::function<Outcome(Transaction&)>& body);

}  // namespace faultline::store
