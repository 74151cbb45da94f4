#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/support/output.h"

namespace faultline::cli {

/// The lines of a file or of standard input, one after the other, with flat memory.
class LineReader {
 public:
  /// "-": standard input.
  [[nodiscard]] static Expected<LineReader> open(const std::string& path, std::size_t line_bytes_max);
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  /// The next line without its end, into `line`. False: there is none. `code` "line_too_long" is for a line
  /// over the limit, of which nothing was kept; the next call goes on after it.
  [[nodiscard]] Expected<bool> next(std::string& line);

  [[nodiscard]] std::uint64_t line_number() const { return line_number_; }  ///< of the last one; from 1
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }
  /// Its size, if it is a file that can be read again.
  [[nodiscard]] std::optional<std::uint64_t> size() const { return size_; }

 private:
  LineReader(int file, std::size_t line_bytes_max) : file_(file), line_bytes_max_(line_bytes_max) {}
  [[nodiscard]] Expected<bool> fill();

  int file_;
  std::size_t line_bytes_max_;
  std::optional<std::uint64_t> size_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::uint64_t line_number_ = 0;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace faultline::cli
