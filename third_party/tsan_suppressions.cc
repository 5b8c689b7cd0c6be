// libzmq is not compiled with ThreadSanitizer, which therefore cannot see how
// its threads synchronise. Without the sanitizer nobody calls this.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libzmq.so.5\n";
}
