#include "cli/enqueue/line_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace faultline::cli {
namespace {

Failure cannot_read(const std::string& path, int error) {
  return {.code = "cannot_read",
          .message = "cannot read " + path + ": " + std::generic_category().message(error),
          .hint = "check the file's name and permissions; \"-\" is standard input"};
}

}  // namespace

Expected<LineReader> LineReader::open(const std::string& path, std::size_t line_bytes_max) {
  if (path == "-") return LineReader{STDIN_FILENO, line_bytes_max};
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::unexpected(cannot_read(path, errno));
  LineReader reader{file, line_bytes_max};
  struct stat status{};
  if (::fstat(file, &status) == 0) {
    if (S_ISDIR(status.st_mode)) return std::unexpected(cannot_read(path, EISDIR));
    if (S_ISREG(status.st_mode)) reader.size_ = static_cast<std::uint64_t>(status.st_size);
  }
  return reader;
}

LineReader::LineReader(LineReader&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      line_bytes_max_(other.line_bytes_max_),
      size_(other.size_),
      buffer_(std::move(other.buffer_)),
      at_(other.at_),
      line_number_(other.line_number_),
      bytes_read_(other.bytes_read_) {}

LineReader::~LineReader() {
  if (file_ > STDIN_FILENO) ::close(file_);
}

Expected<bool> LineReader::fill() {
  constexpr std::size_t kChunk = 262'144;
  buffer_.resize(kChunk);
  at_ = 0;
  ssize_t count = 0;
  do {
    count = ::read(file_, buffer_.data(), buffer_.size());
  } while (count < 0 && errno == EINTR);
  if (count < 0) {
    const int error = errno;
    buffer_.clear();
    return std::unexpected(cannot_read("the input", error));
  }
  buffer_.resize(static_cast<std::size_t>(count));
  bytes_read_ += static_cast<std::uint64_t>(count);
  return count > 0;
}

Expected<bool> LineReader::next(std::string& line) {
  line.clear();
  bool too_long = false;
  bool any = false;
  for (;;) {
    if (at_ == buffer_.size()) {
      const auto more = fill();
      if (!more) return std::unexpected(more.error());
      if (!*more) break;
    }
    any = true;
    const std::size_t end = buffer_.find('\n', at_);
    const std::size_t stop = std::min(end, buffer_.size());
    if (line.size() + (stop - at_) > line_bytes_max_) {
      too_long = true;
      line.clear();
    }
    if (!too_long) line.append(buffer_, at_, stop - at_);
    at_ = std::min(stop + 1, buffer_.size());
    if (end != std::string::npos) break;
  }
  if (!any) return false;
  ++line_number_;
  if (!too_long) return true;
  return std::unexpected(
      Failure{.code = "line_too_long",
              .message = "the line has more than " + std::to_string(line_bytes_max_) + " bytes",
              .hint = "store the data elsewhere and enqueue a reference to it"});
}

}  // namespace faultline::cli
