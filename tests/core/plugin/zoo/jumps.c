/* The good animal, which leaves its start() by a longjmp into a call that has long returned.
 * ../borders_test.cpp. */
#include <setjmp.h>
#include <string.h>
#define ZOO_START jump
#define ZOO_EXTRA                                                       \
  static jmp_buf gone;                                                  \
  static int enter(volatile char* below) {                              \
    volatile char deep[65536];                                          \
    deep[0] = below ? below[0] : 0;                                     \
    return setjmp(gone) + deep[0];                                      \
  }                                                                     \
  __attribute__((constructor)) static void remember(void) { enter(0); } \
  static th_status jump(const th_host* h, th_error* error) {            \
    (void)h, (void)error;                                               \
    longjmp(gone, 1);                                                   \
  }
#include "zoo.c"
