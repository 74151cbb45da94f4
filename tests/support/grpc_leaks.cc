// What LeakSanitizer finds of gRPC's own when a program of these tests ends: host names that its resolver
// looked up, and handshakes that were under way or had failed when their channel went.

// NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizer's name for it
extern "C" const char* __lsan_default_suppressions();
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() { return "leak:libcares.so\nleak:libcrypto.so\n"; }
