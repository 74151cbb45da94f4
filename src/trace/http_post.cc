#include "trace/http_post.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <new>
#include <optional>

#include <curl/curl.h>

#include "base/host_port.h"

namespace faultline::trace {
namespace {

Error invalid(std::string message) {
  return {.code = ErrorCode::invalid_argument,
          .message = std::move(message),
          .hint = "write it as http://127.0.0.1:4318 or https://collector.example.com:4318"};
}

}  // namespace

Expected<std::string> parse_endpoint(std::string_view text) {
  const auto wrong = [&](const std::string& why) {
    return std::unexpected(invalid("the OTLP endpoint \"" + std::string{text} + "\" " + why));
  };
  const bool tls = text.starts_with("https://");
  if (!tls && !text.starts_with("http://")) return wrong("is not an http:// or https:// URL");
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == '\x7f')
      return wrong("has a blank or a control character in it");
  }
  const std::string scheme = tls ? "https://" : "http://";
  const std::string_view rest = text.substr(scheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view path = rest.substr(slash);
  const std::string_view authority = rest.substr(0, slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (rest.find_first_of("?#") != std::string_view::npos || authority.contains('@'))
    return wrong("has more in it than a host, a port and a path");
  const auto address = parse_connect_address(authority, tls ? 443 : 80);
  if (!address) return wrong("is not one: " + address.error());
  return scheme + address->to_string() + std::string{path};
}

/// Keeps SIGPIPE from this thread: OpenSSL writes to a connection that its peer has closed with no word
/// against it, and libcurl leaves signals alone in a program with threads. One that came meanwhile is taken
/// away; one that was pending before is not.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;
  ~WithoutSigpipe() {
    constexpr timespec kAtOnce{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &kAtOnce);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

/// libcurl's multi interface with one transfer, because that can be woken.
class HttpPost::Impl {
 public:
  Impl(const std::string& url, const std::string& ca_file) {
    static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
    headers_.reset(curl_slist_append(nullptr, "Content-Type: application/json"));
    // Else a large body waits a second for a "100 Continue" that many do not send.
    if (headers_) curl_slist_append(headers_.get(), "Expect:");
    if (initialised != CURLE_OK || !multi_ || !easy_ || !headers_) throw std::bad_alloc{};
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_PROXY, "");  // a collector is near, and no proxy sees spans by accident
    set(CURLOPT_USERAGENT, "faultline");
    set(CURLOPT_HTTPHEADER, headers_.get());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_ERRORBUFFER, error_.data());
    set(CURLOPT_WRITEFUNCTION, &ignore);
    set(CURLOPT_POST, 1L);
    if (!ca_file.empty()) set(CURLOPT_CAINFO, ca_file.c_str());
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() = default;

  [[nodiscard]] std::expected<int, std::string> send(const std::string& body,
                                                     std::chrono::milliseconds timeout) {
    const WithoutSigpipe guard;
    error_.front() = '\0';
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    set(CURLOPT_POSTFIELDS, body.data());
    curl_multi_add_handle(multi_.get(), easy_.get());
    const auto result = transfer();
    curl_multi_remove_handle(multi_.get(), easy_.get());
    if (!result) return std::unexpected("it was cancelled");
    if (*result == CURLE_OPERATION_TIMEDOUT)
      return std::unexpected("no answer in " + std::to_string(timeout.count()) + " ms");
    if (*result == CURLE_PEER_FAILED_VERIFICATION)
      return std::unexpected("its certificate is not trusted: " + why(*result) +
                             "; otlp_ca names a file with the authority that it is of");
    if (*result != CURLE_OK) return std::unexpected(why(*result));
    long status = 0;
    curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &status);
    return static_cast<int>(status);
  }

  void cancel() {
    cancelled_ = true;
    curl_multi_wakeup(multi_.get());
  }

 private:
  template <auto free>
  struct Free {
    void operator()(auto* what) const { free(what); }
  };

  static std::size_t ignore(char* /*data*/, std::size_t size, std::size_t count, void* /*user*/) {
    return size * count;
  }

  template <class Value>
  void set(CURLoption option, Value value) {
    curl_easy_setopt(easy_.get(), option, value);
  }

  /// Nothing: it was cancelled.
  [[nodiscard]] std::optional<CURLcode> transfer() {
    constexpr int kWaitMaxMs = 60'000;  // it is woken before, by what happens or by libcurl's own deadlines
    while (!cancelled_) {
      int running = 0;
      if (curl_multi_perform(multi_.get(), &running) != CURLM_OK) return CURLE_FAILED_INIT;
      if (running == 0) {
        int left = 0;
        const CURLMsg* const message = curl_multi_info_read(multi_.get(), &left);
        return message == nullptr ? CURLE_FAILED_INIT : message->data.result;
      }
      if (curl_multi_poll(multi_.get(), nullptr, 0, kWaitMaxMs, nullptr) != CURLM_OK)
        return CURLE_FAILED_INIT;
    }
    return std::nullopt;
  }

  [[nodiscard]] std::string why(CURLcode code) const {
    return error_.front() != '\0' ? std::string{error_.data()} : std::string{curl_easy_strerror(code)};
  }

  std::array<char, CURL_ERROR_SIZE> error_{};
  std::unique_ptr<curl_slist, Free<&curl_slist_free_all>> headers_;
  std::unique_ptr<CURLM, Free<&curl_multi_cleanup>> multi_{curl_multi_init()};
  std::unique_ptr<CURL, Free<&curl_easy_cleanup>> easy_{curl_easy_init()};
  std::atomic<bool> cancelled_{false};
};

HttpPost::HttpPost(const std::string& url, const std::string& ca_file)
    : impl_(std::make_unique<Impl>(url, ca_file)) {}
HttpPost::~HttpPost() {
  const WithoutSigpipe guard;  // a connection over TLS says that it closes
  impl_.reset();
}
std::expected<int, std::string> HttpPost::send(const std::string& body, std::chrono::milliseconds timeout) {
  return impl_->send(body, timeout);
}
void HttpPost::cancel() { impl_->cancel(); }

}  // namespace faultline::trace
