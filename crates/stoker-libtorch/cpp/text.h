// Texts that go to Rust, which gives them back to `stoker_text_free`.

#pragma once

#include <cstdlib>
#include <cstring>

// A copy of `text`; null if there is no memory even for that.
inline char *stoker_text(const char *text) {
  const std::size_t size = std::strlen(text) + 1;
  char *const copied = static_cast<char *>(std::malloc(size));
  return copied ? static_cast<char *>(std::memcpy(copied, text, size)) : nullptr;
}

// Runs `work`. Returns 0; or 1 with what it threw in `*error`.
template <typename Work>
int stoker_guard(char **error, Work &&work) {
  try {
    work();
    return 0;
  } catch (const std::exception &exception) {
    *error = stoker_text(exception.what());
  } catch (...) {
    *error = stoker_text("an exception that is no std::exception");
  }
  return 1;
}
