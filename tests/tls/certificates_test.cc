#include "tls/certificates.h"

#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/process.h"
#include "support/scratch.h"
#include "support/tls.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class CertificatesTest : public ::testing::Test {
 protected:
  CertificatesTest() { write(pair_); }

  void write(const TlsPair& pair) const {
    write_file(files_.cert, pair.cert);
    write_file(files_.key, pair.key);
  }
  [[nodiscard]] Expected<std::shared_ptr<const tls::Certificates>> load() {
    return tls::Certificates::load({.files = files_, .look_every = 5ms, .log = [this](const Event& event) {
                                      const std::lock_guard lock{mutex_};
                                      events_.emplace_back(event.name);
                                    }});
  }
  [[nodiscard]] std::string why_not() {
    const auto loaded = load();
    return loaded ? std::string{"it was loaded"} : loaded.error().describe();
  }
  [[nodiscard]] std::vector<std::string> events() const {
    const std::lock_guard lock{mutex_};
    return events_;
  }

  ScratchDir dir_;
  tls::Files files_{.cert = dir_ / "server.pem", .key = dir_ / "server.key"};
  TlsPair pair_{1};
  mutable std::mutex mutex_;
  std::vector<std::string> events_;
};

TEST_F(CertificatesTest, files_that_do_not_serve_are_an_error_at_the_start_that_names_them) {
  EXPECT_EQ(why_not(), "it was loaded");
  write_file(files_.key, TlsPair{2}.key);
  EXPECT_THAT(why_not(), HasSubstr("is not the one of the certificate"));
  write_file(files_.key, pair_.cert);
  EXPECT_THAT(why_not(), HasSubstr("server.key"));
  write(pair_);
  write_file(files_.cert, pair_.key);
  EXPECT_THAT(why_not(), HasSubstr("there is no certificate in it"));
  write_file(files_.cert, std::string(2'000'000, 'x'));
  EXPECT_THAT(why_not(), HasSubstr("over 1 MiB"));
  write_file(files_.cert, pair_.cert + pair_.cert.substr(0, 300));
  EXPECT_THAT(why_not(), HasSubstr("what follows its certificate 1"));
  write(pair_);
  files_.client_ca = files_.key;
  EXPECT_THAT(why_not(), HasSubstr("server.key"));
  files_.client_ca = dir_ / "nothing.pem";
  EXPECT_THAT(why_not(), HasSubstr("nothing.pem"));
}

TEST_F(CertificatesTest, what_changes_again_is_told_again_and_what_stays_is_not) {
  const auto certificates = load();
  ASSERT_TRUE(certificates);
  const auto first = (*certificates)->current();
  write_file(files_.cert, "");
  ASSERT_TRUE(eventually([&] { return events().size() == 1; }));
  EXPECT_EQ((*certificates)->current(), first);
  write(pair_);
  ASSERT_TRUE(eventually([&] { return events().size() == 2; }));
  EXPECT_NE((*certificates)->current(), first);
  std::filesystem::remove(files_.key);
  ASSERT_TRUE(eventually([&] { return events().size() == 3; }));
  EXPECT_THAT(events(), ::testing::ElementsAre("tls_reload_failed", "tls_reloaded", "tls_reload_failed"));
}

}  // namespace
}  // namespace faultline::testing
