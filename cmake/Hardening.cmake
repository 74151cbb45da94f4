# Flags of what ships. tools/check_hardening.sh looks for their effect in the finished program.

add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie>)
add_compile_options(
  -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
  -fstack-protector-strong
  -fstack-clash-protection)
add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options(-fcf-protection=full)
  # Debian's startup object carries no CET note, so the linker would drop ours. It is compatible with shadow
  # stacks, which the linker is told here; it has no landing pad, so IBT is not claimed for the whole program.
  add_link_options(-Wl,-z,shstk)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  add_compile_options(-mbranch-protection=standard)
endif()
