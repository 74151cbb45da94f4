#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace faultline::http {

/// Bytes from and to one client, plain or over TLS. Used by one thread, which also runs the callbacks, never
/// from within the call that took them. After `close` a callback that is outstanding reports a failure.
class Transport {
 public:
  /// False: it failed, or the peer is gone.
  using Handshaken = std::move_only_function<void(bool good)>;
  /// Nothing read: the peer has sent its last byte, or is gone.
  using Read = std::move_only_function<void(std::size_t bytes)>;
  using Written = std::move_only_function<void(bool good)>;

  virtual ~Transport() = default;
  virtual void handshake(Handshaken done) = 0;
  /// One at a time.
  virtual void read_some(std::span<char> into, Read done) = 0;
  /// All of both, one call at a time.
  virtual void write(std::string head, std::string body, Written done) = 0;
  /// Tells the peer that nothing more comes, throws away what it still sends, and is done when it has ended
  /// too.
  virtual void linger(Written done) = 0;
  virtual void close() = 0;
  /// The client's address and port, for the log; empty when it is not known.
  [[nodiscard]] virtual std::string peer() const { return {}; }
};

}  // namespace faultline::http
