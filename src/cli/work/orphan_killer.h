#pragma once

#include <sys/types.h>

#include "private_pg/file.h"

namespace faultline::cli {

/// A small process beside this one that outlives it by a moment: when this process ends, however it ends, the
/// orphan killer kills the process groups that were announced to it and not taken back. It does nothing else.
///
/// (The kernel can kill a child when its parent dies, but not what the child has started.)
class OrphanKiller {
 public:
  OrphanKiller();
  OrphanKiller(const OrphanKiller&) = delete;
  OrphanKiller& operator=(const OrphanKiller&) = delete;
  ~OrphanKiller();

  /// Safe between fork and exec: a group announces itself before it can have started anything.
  void announce(pid_t group) const noexcept;
  /// Before the group's leader is reaped, so that its number still names it.
  void take_back(pid_t group) const noexcept;

  /// Of the way to it, which whoever announces or takes back keeps open.
  [[nodiscard]] int fd() const noexcept { return pipe_.get(); }

 private:
  private_pg::FileDescriptor pipe_;
  pid_t pid_ = -1;
};

}  // namespace faultline::cli
