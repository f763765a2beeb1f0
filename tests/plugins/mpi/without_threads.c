// For LD_PRELOAD: an MPI library that was built without support for threads.
#include <dlfcn.h>

__attribute__((visibility("default"))) int MPI_Init_thread(int* argc, char*** argv, int required,
                                                           int* provided);
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  int (*real)(int*, char***, int, int*);
  *(void**)&real = dlsym(RTLD_NEXT, "MPI_Init_thread");
  if (!real) *(void**)&real = dlsym(dlopen("libmpi.so.40", RTLD_NOW | RTLD_NOLOAD), "MPI_Init_thread");
  const int failed = real(argc, argv, required, provided);
  *provided = 0;  // MPI_THREAD_SINGLE
  return failed;
}
