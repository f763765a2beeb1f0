/* The correct plugin of configurable.c, except that start() calls longjmp() into a function that has already
 * returned. ../runtime_isolation_test.cpp. */
#include <setjmp.h>
#include <string.h>
#define BROKEN_START jump
#define BROKEN_EXTRA                                                    \
  static jmp_buf returned;                                              \
  static int enter(volatile char* below) {                              \
    volatile char deep[65536];                                          \
    deep[0] = below ? below[0] : 0;                                     \
    return setjmp(returned) + deep[0];                                  \
  }                                                                     \
  __attribute__((constructor)) static void remember(void) { enter(0); } \
  static th_status jump(const th_host* h, th_error* error) {            \
    (void)h, (void)error;                                               \
    longjmp(returned, 1);                                               \
  }
#include "configurable.c"
